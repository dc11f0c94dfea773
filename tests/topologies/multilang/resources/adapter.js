// Components of our JavaScript adapter, by $KIND: as classes, and as they are written for Storm.
'use strict';
const storm = require(process.env.ADAPTER);

class Basic extends storm.BasicBolt {
  async initialize(conf) {
    console.log('a stray print');
    this.log(`prepared ${this.componentId} ${this.taskId} of ${conf['topology.name']}`, 'warn');
  }

  async process(tup) {
    const n = tup.get('n');
    if (n === 7 && !this.seven) {
      this.seven = true;
      throw new RangeError('not seven, the first time');
    }
    await new Promise((resolve) => setTimeout(resolve, n % 3));
    this.reportMetric('seen', n);
    const deep = { deep: [2 ** 40, -1, -200, -70000] };
    const ids = await this.emitForTaskIds({ tuple: [n, 'ü∂ß', [null, true, 1.5, deep]] });
    if (ids.length !== 1) throw new Error(`${ids} are not one task`);
  }
}

class Careful extends storm.Bolt {
  process(tup) {
    if (tup.isTick) {
      this.ack(tup);
      return;
    }
    const n = tup.get(0);
    this.emit({ tuple: [n, 'default'], anchors: tup });
    this.emit({ tuple: [n, 'side'], anchorTupleId: tup.id, stream: 'side' });
    const [task] = Object.entries(this.context['task->component']).find(([, id]) => id === 'sink');
    this.emitDirect({ tuple: [n, 'direct'], anchors: [tup], stream: 'direct', task: Number(task) });
    if (n === 5 && !this.failed) {
      this.failed = true;
      this.fail(tup);
    } else this.ack(tup);
  }
}

class Raises extends storm.Bolt {
  process() {
    throw new Error('out of order');
  }
}

// In the way of Storm's examples: prototypes and callbacks.
function Numbers() {
  storm.Spout.call(this);
  this.left = Array.from({ length: 50 }, (_, n) => n);
  this.pending = new Set();
}
Numbers.prototype = Object.create(storm.Spout.prototype);
Numbers.prototype.constructor = Numbers;
Numbers.prototype.activate = function activate(done) {
  this.logInfo('activated');
  done();
};
Numbers.prototype.nextTuple = function nextTuple(done) {
  if (this.left.length) {
    const n = this.left.shift();
    this.pending.add(n);
    this.emit({ tuple: [n], id: n }, n % 2 ? undefined : (ids) => this.log(`to ${ids}`));
  }
  setTimeout(done, 1);
};
Numbers.prototype.ack = function ack(id, done) {
  if (!this.pending.delete(id)) throw new Error(`no message ${id}`);
  this.emit({ tuple: [-1 - id] });
  done();
};
Numbers.prototype.fail = function fail(id, done) {
  this.left.push(id);
  done();
};

const kinds = { basic: Basic, careful: Careful, raises: Raises, spout: Numbers };
new kinds[process.env.KIND]().run();
