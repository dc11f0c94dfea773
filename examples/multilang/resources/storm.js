'use strict';
/*
 * Shell components in JavaScript: spouts and bolts that run as child processes of a worker.
 *
 *     const { BasicBolt } = require('./storm');
 *
 *     class Split extends BasicBolt {
 *       async process(tup) {
 *         for (const word of tup.get('line').split(/\s+/)) this.emit({ tuple: [word] });
 *       }
 *     }
 *
 *     new Split().run();
 *
 * It speaks Storm's multi-language protocol on stdin and stdout, so that the same file runs under
 * Squall and under Apache Storm, and it has the methods of Storm's own storm.js. It needs Node 16 or
 * later and nothing else; copy it into `resources/`, or install the package.
 *
 * A method that the worker has called is done when it calls its last argument, `done(error)`, if it
 * declares that argument; otherwise when it returns, or when the promise that it returns settles.
 *
 * Messages are JSON or MessagePack: the first byte of the worker's first message tells which.
 * `console.log` is safe: it goes to stderr, and from there to the worker's log.
 */
const fs = require('fs');
const path = require('path');

const LEVELS = { trace: 0, debug: 1, info: 2, warn: 3, error: 4 };

/** A tuple that a bolt receives. */
class Tuple {
  constructor(id, component, stream, task, values, fields = []) {
    this.id = id;
    this.component = component;
    this.stream = stream;
    this.task = task;
    this.values = values;
    this.fields = fields;
  }

  /** A value by its field, or by its position. Throws RangeError if there is none. */
  get(key) {
    const index = typeof key === 'number' ? key : this.fields.indexOf(key);
    if (index < 0 || index >= this.values.length) {
      throw new RangeError(`no field ${JSON.stringify(key)}; it has ${JSON.stringify(this.fields)}`);
    }
    return this.values[index];
  }

  /** Whether it is a tick tuple (topology.tick.tuple.freq.secs). */
  get isTick() {
    return this.component === '__system' && this.stream === '__tick';
  }
}

/** Messages as JSON, each followed by a line "end". */
class JsonCodec {
  constructor() {
    this.parts = []; // of a message whose end has not come
    this.tail = ''; // what follows them: an end may have begun in it
    this.decoder = new (require('string_decoder').StringDecoder)('utf8');
  }

  read(chunk) {
    const text = this.tail + this.decoder.write(chunk);
    const found = [];
    let start = 0;
    for (;;) {
      const end = text.indexOf('\nend\n', start);
      if (end < 0) break;
      this.parts.push(text.slice(start, end));
      found.push(JSON.parse(this.parts.join('')));
      this.parts = [];
      start = end + 5;
    }
    const cut = Math.max(start, text.length - 4);
    this.parts.push(text.slice(start, cut));
    this.tail = text.slice(cut);
    return found;
  }

  write(message) {
    return `${JSON.stringify(message)}\nend\n`;
  }
}

// Of a type of MessagePack: how many bytes it has, or how many its length or count has.
const FIXED = {
  0xc0: 0, 0xc2: 0, 0xc3: 0, 0xca: 4, 0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8,
  0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8,
};
const COUNTED = {
  0xc4: 1, 0xc5: 2, 0xc6: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4,
};
const EMPTY = Buffer.alloc(0);

/**
 * Messages as MessagePack, one after the other (https://msgpack.org: "Formats"). Each byte is looked
 * at once for the end of its message, however small the pieces in which it comes, and read after
 * that.
 */
class MessagePackCodec {
  constructor() {
    this.data = EMPTY; // what has come and is not read yet: its first `size` bytes
    this.size = 0;
    this.seen = 0; // of them, those in which the end of the first message is not
    this.missing = 1; // objects of that message behind them
  }

  read(chunk) {
    this.append(chunk);
    const found = [];
    let start = 0;
    while (this.findEnd()) {
      this.at = start;
      found.push(this.object());
      start = this.seen;
      this.missing = 1;
    }
    this.size -= start;
    this.seen -= start;
    this.data = this.size ? this.data.subarray(start) : EMPTY;
    return found;
  }

  append(chunk) {
    const size = this.size + chunk.length;
    if (this.size === 0) this.data = chunk;
    else {
      if (size > this.data.length) {
        const larger = Buffer.allocUnsafe(Math.max(size, 2 * this.size));
        this.data.copy(larger, 0, 0, this.size);
        this.data = larger;
      }
      chunk.copy(this.data, this.size);
    }
    this.size = size;
  }

  /** Go on looking for the end of the first message. True when it is at `seen`. */
  findEnd() {
    while (this.missing > 0) {
      if (this.seen >= this.size) return false;
      const kind = this.data[this.seen];
      let next = this.seen + 1;
      let inside = 0; // objects
      if (kind < 0x80 || kind >= 0xe0) inside = 0;
      else if (kind < 0x90) inside = 2 * (kind & 0x0f);
      else if (kind < 0xa0) inside = kind & 0x0f;
      else if (kind < 0xc0) next += kind & 0x1f;
      else if (kind in FIXED) next += FIXED[kind];
      else if (kind in COUNTED) {
        const bytes = COUNTED[kind];
        if (next + bytes > this.size) return false;
        const count = this.data.readUIntBE(next, bytes);
        next += bytes;
        if (kind >= 0xde) inside = 2 * count;
        else if (kind >= 0xdc) inside = count;
        else next += count;
      } else throw new Error(`MessagePack type 0x${kind.toString(16)} is not supported`);
      if (next > this.size) return false;
      this.seen = next;
      this.missing += inside - 1;
    }
    return true;
  }

  take(count) {
    const start = this.at;
    this.at += count;
    return start;
  }

  length(bytes) {
    return this.data.readUIntBE(this.take(bytes), bytes);
  }

  object() {
    const kind = this.data[this.take(1)];
    if (kind < 0x80) return kind;
    if (kind >= 0xe0) return kind - 0x100;
    if (kind < 0x90) return this.map(kind & 0x0f);
    if (kind < 0xa0) return this.list(kind & 0x0f);
    if (kind < 0xc0) return this.text(kind & 0x1f);
    switch (kind) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: {
        const length = this.length(1 << (kind - 0xc4));
        return Buffer.from(this.data.subarray(this.take(length), this.at));
      }
      case 0xca: return this.data.readFloatBE(this.take(4));
      case 0xcb: return this.data.readDoubleBE(this.take(8));
      case 0xcc: case 0xcd: case 0xce: return this.length(1 << (kind - 0xcc));
      case 0xcf: return exact(this.data.readBigUInt64BE(this.take(8)));
      case 0xd0: return this.data.readInt8(this.take(1));
      case 0xd1: return this.data.readInt16BE(this.take(2));
      case 0xd2: return this.data.readInt32BE(this.take(4));
      case 0xd3: return exact(this.data.readBigInt64BE(this.take(8)));
      case 0xd9: case 0xda: case 0xdb: return this.text(this.length(1 << (kind - 0xd9)));
      case 0xdc: case 0xdd: return this.list(this.length(2 << (kind - 0xdc)));
      default: return this.map(this.length(2 << (kind - 0xde))); // 0xde, 0xdf
    }
  }

  text(length) {
    return this.data.toString('utf8', this.take(length), this.at);
  }

  list(count) {
    const found = [];
    for (let i = 0; i < count; i++) found.push(this.object());
    return found;
  }

  map(count) {
    const found = {};
    for (let i = 0; i < count; i++) {
      const key = this.object();
      found[key] = this.object();
    }
    return found;
  }

  write(message) {
    const out = [];
    pack(message, out);
    return Buffer.concat(out);
  }
}

/** A number, or a BigInt where a number would not be exact. */
function exact(big) {
  const number = Number(big);
  return Number.isSafeInteger(number) ? number : big;
}

function pack(value, out) {
  if (value === null || value === undefined) out.push(Buffer.of(0xc0));
  else if (value === false) out.push(Buffer.of(0xc2));
  else if (value === true) out.push(Buffer.of(0xc3));
  else if (typeof value === 'number' || typeof value === 'bigint') out.push(packNumber(value));
  else if (typeof value === 'string') {
    const text = Buffer.from(value, 'utf8');
    out.push(packLength(text.length, 0xa0, 32, [0xd9, 0xda, 0xdb]), text);
  } else if (Buffer.isBuffer(value) || value instanceof Uint8Array) {
    out.push(packLength(value.length, 0, 0, [0xc4, 0xc5, 0xc6]), Buffer.from(value));
  } else if (Array.isArray(value)) {
    out.push(packLength(value.length, 0x90, 16, [null, 0xdc, 0xdd]));
    for (const item of value) pack(item, out);
  } else if (typeof value === 'object') {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined);
    out.push(packLength(entries.length, 0x80, 16, [null, 0xde, 0xdf]));
    for (const [key, item] of entries) {
      pack(key, out);
      pack(item, out);
    }
  } else throw new TypeError(`MessagePack cannot carry a ${typeof value}`);
}

function packNumber(value) {
  if (typeof value === 'number' && !Number.isSafeInteger(value)) {
    const out = Buffer.alloc(9, 0xcb);
    out.writeDoubleBE(value, 1);
    return out;
  }
  if (value >= -32 && value < 128) return Buffer.of(Number(value) & 0xff);
  if (value >= -(2 ** 31) && value < 2 ** 31) {
    const out = Buffer.alloc(5, 0xd2);
    out.writeInt32BE(Number(value), 1);
    return out;
  }
  const out = Buffer.alloc(9, 0xd3);
  if (value >= 2n ** 63n) {
    out[0] = 0xcf;
    out.writeBigUInt64BE(BigInt(value), 1);
  } else out.writeBigInt64BE(BigInt(value), 1);
  return out;
}

function packLength(length, short, shortMax, kinds) {
  if (length < shortMax) return Buffer.of(short | length);
  if (kinds[0] !== null && length < 2 ** 8) return Buffer.of(kinds[0], length);
  if (length < 2 ** 16) {
    const out = Buffer.alloc(3, kinds[1]);
    out.writeUInt16BE(length, 1);
    return out;
  }
  const out = Buffer.alloc(5, kinds[2]);
  out.writeUInt32BE(length, 1);
  return out;
}

/** The base of spouts and bolts: the calls to the worker. */
class Storm {
  constructor() {
    this._setUp();
  }

  _setUp() {
    this.conf = {};
    this.context = {};
    this._codec = null;
    this._first = true;
    this._waiting = []; // callbacks that wait for task ids, in the order of their emits
  }

  // -- for users --

  /** Called once, before anything else. */
  initialize(conf, context, done) {
    done();
  }

  /** The id of this task, and of its component. */
  get taskId() {
    return this.context.taskid;
  }

  get componentId() {
    return this.context.componentid;
  }

  /** Write to the worker's log: 'trace', 'debug', 'info', 'warn', 'error', or Storm's number. */
  log(message, level = 'info') {
    const number = typeof level === 'number' ? level : LEVELS[level];
    if (number === undefined) throw new RangeError(`no log level ${level}`);
    this.sendMsgToParent({ command: 'log', msg: String(message), level: number });
  }

  /** Report an error, text or an Error, which `storm get-errors` shows, and go on. */
  reportError(error) {
    const text = error instanceof Error ? error.stack || String(error) : String(error);
    this.sendMsgToParent({ command: 'error', msg: text });
  }

  /** Update a metric. (Apache Storm needs a metric that is registered under this name.) */
  reportMetric(name, value) {
    this.sendMsgToParent({ command: 'metrics', name: String(name), params: value });
  }

  /**
   * Emit a tuple. Details: tuple, stream, task (of a direct stream); of a bolt anchors or
   * anchorTupleId, of a spout id. `onTaskIds(ids)` is called with the tasks that get the tuple;
   * without it, the worker need not answer.
   */
  emit(details, onTaskIds) {
    const { tuple, stream, task } = details;
    if (!Array.isArray(tuple)) throw new TypeError('emit({tuple: [...]}): tuple is not an array');
    const message = { command: 'emit', tuple, stream, task, ...this._emitDetails(details) };
    const direct = task !== undefined && task !== null;
    if (direct && onTaskIds) throw new TypeError('a direct emit is not answered with task ids');
    if (!onTaskIds && !direct) message.need_task_ids = false;
    this.sendMsgToParent(message);
    if (onTaskIds) this._waiting.push(onTaskIds); // not if it could not be sent: no answer comes
  }

  /** Emit a tuple to one task, on a direct stream: details.task. */
  emitDirect(details) {
    if (typeof details.task !== 'number') throw new TypeError('emitDirect needs details.task');
    this.emit(details);
  }

  /** Like `emit`; the promise resolves to the ids of the tasks that get the tuple. */
  emitForTaskIds(details) {
    return new Promise((resolve) => this.emit(details, resolve));
  }

  /** Serve the worker until it closes the pipe. */
  run() {
    this._takeOutput();
    process.stdin.on('data', (chunk) => this._guard(() => this._receive(chunk)));
    process.stdin.on('end', () => process.exit(0));
    process.on('unhandledRejection', (error) => this._end(error));
    process.on('uncaughtException', (error) => this._end(error));
  }

  // -- the protocol --

  sendMsgToParent(message) {
    this._write(this._codec.write(message));
  }

  sync() {
    this.sendMsgToParent({ command: 'sync' });
  }

  _takeOutput() {
    const write = process.stdout.write.bind(process.stdout);
    this._write = (data) => write(data);
    process.stdout.on('error', () => process.exit(0)); // the worker is gone
    process.stdout.write = process.stderr.write.bind(process.stderr);
  }

  _receive(chunk) {
    if (this._codec === null) {
      // '{', or a blank before it; a map of MessagePack begins with 0x80 or more.
      this._codec = chunk[0] < 0x80 ? new JsonCodec() : new MessagePackCodec();
    }
    for (const message of this._codec.read(chunk)) {
      if (this._first) {
        this._first = false;
        this._shakeHands(message);
      } else if (Array.isArray(message)) {
        const onTaskIds = this._waiting.shift();
        if (onTaskIds) onTaskIds(message);
      } else this._whenReady(message);
    }
  }

  _shakeHands(setup) {
    this.conf = setup.conf || {};
    this.context = setup.context || {};
    this._fields = this.context['source->stream->fields'] || {};
    fs.writeFileSync(path.join(setup.pidDir, String(process.pid)), '');
    this.sendMsgToParent({ pid: process.pid });
    this._early = []; // commands that came before `initialize` was done
    call(this, this.initialize, 2, [this.conf, this.context], (error) => {
      if (error) {
        this._end(error);
        return;
      }
      const early = this._early;
      this._early = null;
      for (const message of early) this._handle(message);
    });
  }

  _whenReady(message) {
    if (this._early === null) this._handle(message);
    else if (message.stream === '__heartbeat') this.sync();
    else this._early.push(message);
  }

  _guard(work) {
    try {
      work();
    } catch (error) {
      this._end(error);
    }
  }

  /** Report an error that nothing handles; the worker then starts another process. */
  _end(error) {
    try {
      this.reportError(error);
    } catch (_) {
      process.stderr.write(`${error && error.stack}\n`);
    }
    process.exit(1);
  }
}

/** Call a user's method; `done(error)` is called once. `args`: without the callback. */
function call(owner, method, count, args, done) {
  let called = false;
  const once = (error) => {
    if (called) return;
    called = true;
    done(error);
  };
  let result;
  try {
    result = method.call(owner, ...args, once);
  } catch (error) {
    once(error || new Error('it threw nothing'));
    return;
  }
  const waits = method.length > count; // for `done`
  if (result && typeof result.then === 'function') {
    result.then(() => waits || once(), (error) => once(error || new Error('it was rejected')));
  } else if (!waits) once();
}

/** A bolt that acks, fails and anchors by itself. */
class Bolt extends Storm {
  /** Called for each tuple; several may be in work at once. */
  process(tup, done) {
    done(new Error(`${this.constructor.name} does not define process(tup)`));
  }

  /** A tuple, or its id. */
  ack(tup) {
    this.sendMsgToParent({ command: 'ack', id: idOf(tup) });
  }

  fail(tup) {
    this.sendMsgToParent({ command: 'fail', id: idOf(tup) });
  }

  /** Tell the worker that this process is alive, in the middle of work that blocks. */
  keepAlive() {
    this.sync();
  }

  _emitDetails({ anchors, anchorTupleId }) {
    const found = anchors === undefined ? anchorTupleId : anchors;
    if (found === undefined || found === null) return { anchors: [] };
    return { anchors: (Array.isArray(found) ? found : [found]).map(idOf) };
  }

  _handle(message) {
    if (message.stream === '__heartbeat') {
      this.sync();
      return;
    }
    const { id, comp, stream, task, tuple } = message;
    const fields = (this._fields[comp] || {})[stream] || [];
    this._work(new Tuple(id, comp, stream, task, tuple, fields));
  }

  _work(tup) {
    call(this, this.process, 1, [tup], (error) => {
      if (error) this._end(error);
    });
  }
}

/**
 * A bolt whose tuple is acked when `process` is done. If it fails, the error is reported and the
 * tuple fails. An emit without `anchors` and `anchorTupleId` is anchored to the tuple whose
 * `process` it is made in, also after an `await` or in a timer; `anchors: []` anchors it to none.
 */
class BasicBolt extends Bolt {
  _emitDetails(details) {
    if (details.anchors === undefined && details.anchorTupleId === undefined) {
      const store = current.getStore();
      if (store !== undefined) return { anchors: [store.id] };
    }
    return super._emitDetails(details);
  }

  _work(tup) {
    current.run(tup, () => {
      call(this, this.process, 1, [tup], (error) => {
        if (error) {
          this.reportError(error);
          this.fail(tup);
        } else this.ack(tup);
      });
    });
  }
}

// The tuple whose `process` is running, through its awaits and timers.
const current = new (require('async_hooks').AsyncLocalStorage)();

/** A source of tuples. */
class Spout extends Storm {
  /** Emit a message, or none. */
  nextTuple(done) {
    done(new Error(`${this.constructor.name} does not define nextTuple()`));
  }

  /** The message with this id was processed. */
  ack(id, done) {
    done();
  }

  /** The message with this id failed or timed out. */
  fail(id, done) {
    done();
  }

  /** Called when the topology is activated and deactivated. */
  activate(done) {
    done();
  }

  deactivate(done) {
    done();
  }

  _emitDetails({ id }) {
    return { id };
  }

  _handle({ command, id }) {
    const done = (error) => {
      if (error) this._end(error);
      else this.sync();
    };
    if (command === 'next') call(this, this.nextTuple, 0, [], done);
    else if (command === 'ack') call(this, this.ack, 1, [id], done);
    else if (command === 'fail') call(this, this.fail, 1, [id], done);
    else if (command === 'activate') call(this, this.activate, 0, [], done);
    else if (command === 'deactivate') call(this, this.deactivate, 0, [], done);
    else done();
  }
}

function idOf(tup) {
  return tup instanceof Tuple ? tup.id : tup;
}

for (const level of Object.keys(LEVELS)) {
  const name = `log${level[0].toUpperCase()}${level.slice(1)}`;
  Storm.prototype[name] = function logAt(message) {
    this.log(message, level);
  };
}

/** The class as a constructor that `BasicBolt.call(this)` may call too, as components of Storm do. */
function callable(Class) {
  function Constructor(...args) {
    if (new.target) return Reflect.construct(Class, args, new.target);
    this._setUp();
    return undefined;
  }
  Object.defineProperty(Constructor, 'name', { value: Class.name });
  Constructor.prototype = Class.prototype;
  Class.prototype.constructor = Constructor;
  return Constructor;
}

module.exports = {
  Storm: callable(Storm),
  Spout: callable(Spout),
  Bolt: callable(Bolt),
  BasicBolt: callable(BasicBolt),
  Tuple,
  JsonCodec,
  MessagePackCodec,
};
