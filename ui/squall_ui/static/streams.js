// Which pages of this browser keep a stream open.
//
// Over HTTP/1.1 a browser opens six connections to a server, for all of its windows, and a stream
// occupies one of them: the seventh page would load only after another one is closed. So the pages
// of a browser agree on a few streams, over a channel that they share. Nothing is kept: a page that
// wants a stream asks who has one, and those that have one, or asked before it, answer.

const STREAMS_MAX = 3;
const ANSWER_MS = 300;

const ours = crypto.getRandomValues(new Uint32Array(2)).join(".");
const channel = typeof BroadcastChannel === "function" ? new BroadcastChannel("squall-streams") : null;
const claims = new Map(); // ours, by id
let count = 0;

channel?.addEventListener("message", ({ data }) => {
  for (const [id, claim] of claims) {
    if (data.asks) {
      // Of two that ask at the same time, both know which comes first.
      if (!claim.granted && data.asks < id) claim.others.add(data.asks);
      else channel.postMessage({ to: data.asks, from: id });
    } else if (data.to === id) {
      claim.others.add(data.from);
    }
  }
});

// A function that gives the stream back; null if other pages have all of them.
export async function claimStream() {
  if (!channel) return () => {};
  count += 1;
  const id = `${ours}.${count}`;
  const claim = { granted: false, others: new Set() };
  claims.set(id, claim);
  channel.postMessage({ asks: id });
  await new Promise((done) => setTimeout(done, ANSWER_MS));
  claim.granted = claim.others.size < STREAMS_MAX;
  if (!claim.granted) claims.delete(id);
  return claim.granted ? () => claims.delete(id) : null;
}
