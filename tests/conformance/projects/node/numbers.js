// numbers -> doubles -> sink, built, submitted and run by node-storm: the same file is the topology
// and, in a worker, its components.
//
//     node numbers.js HOST:PORT NAME CONF_JSON
var fs = require('fs')
var path = require('path')
var storm = require('node-storm')

function note(collector, name, line) {
  var folder = collector.context().config('conformance.results')
  fs.appendFileSync(path.join(folder, name), line + '\n')
}

var left = null

var numbers = storm.spout(function (sync) {
  if (left === null) {
    var count = this.context().config('conformance.count')
    left = Array.from({length: count}, function (_, n) { return n })
  }
  if (left.length) {
    var n = left.shift()
    this.emit([n], {id: n})
  }
  sync()
}).declareOutputFields(['n'])
numbers.on('ack', function (data) {
  note(numbers.collector, 'acked', JSON.stringify(data.id))
  numbers.collector.sync()
})
numbers.on('fail', function (data) {
  note(numbers.collector, 'failed', JSON.stringify(data.id))
  left.push(data.id)
  numbers.collector.sync()
})

// By hand: every tenth fails at the first try, and all wait for their task ids.
var seen = {}
var doubles = storm.bolt(function (data) {
  var self = this
  var n = data.tuple[0]
  if (n % 10 === 0 && !seen[n]) {
    seen[n] = true
    self.fail(data)
    return
  }
  self.emit([n, 2 * n], {anchors: [data.id]}).then(function (tasks) {
    if (tasks.length === 1) self.ack(data)
    else self.fail(data)
  })
}).declareOutputFields(['n', 'double'])

// Anchors and acks by itself.
var sink = storm.basicbolt(function (data) {
  note(this, 'doubles', data.tuple.join(' '))
}).declareOutputFields(['none'])

var builder = storm.topologybuilder()
builder.setSpout('numbers', numbers)
builder.setBolt('doubles', doubles, 3).fieldsGrouping('numbers', ['n'])
builder.setBolt('sink', sink, 2).shuffleGrouping('doubles')

var options = {}
if (process.argv.length > 4) {
  options = {nimbus: process.argv[2], name: process.argv[3], config: JSON.parse(process.argv[4])}
}
storm.submit(builder.createTopology(), options).fail(function (error) {
  console.error(error)
  process.exit(1)
})
