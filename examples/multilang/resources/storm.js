// Storm's multi-language protocol for bolts, in JavaScript: messages are JSON, each followed by a
// line "end". `run(process)` calls process(tuple, emit) for every tuple, and acks it afterwards.
'use strict';
const fs = require('fs');

function send(message) {
  fs.writeSync(1, JSON.stringify(message) + '\nend\n');
}

function handle(message, work) {
  if (Array.isArray(message)) return; // task ids: an answer to an emit
  if (message.pidDir !== undefined) {
    fs.closeSync(fs.openSync(`${message.pidDir}/${process.pid}`, 'w'));
    send({ pid: process.pid });
  } else if (message.stream === '__heartbeat') {
    send({ command: 'sync' });
  } else {
    const emit = (values) =>
      send({ command: 'emit', anchors: [message.id], tuple: values, need_task_ids: false });
    try {
      work(message.tuple, emit);
      send({ command: 'ack', id: message.id });
    } catch (error) {
      send({ command: 'error', msg: String(error.stack) });
      send({ command: 'fail', id: message.id });
    }
  }
}

exports.run = function (work) {
  let text = '';
  process.stdin.setEncoding('utf8');
  process.stdin.on('data', (chunk) => {
    text += chunk;
    let end;
    while ((end = text.indexOf('\nend\n')) >= 0) {
      const message = JSON.parse(text.slice(0, end));
      text = text.slice(end + 5);
      handle(message, work);
    }
  });
  process.stdin.on('end', () => process.exit(0));
};
