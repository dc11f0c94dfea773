// node-storm's own builder and components, as its users write them. One file is the whole topology;
// which component runs is told by the handshake.
var storm = require('node-storm')

var next = 0
var numbers = storm.spout(function (sync) {
  if (next < 200) {
    this.emit(['number ' + next], next % 2 ? {stream: 'default'} : undefined)
    next++
  }
  sync()
}).declareOutputFields(['n'])

// Anchors and acks by itself.
var basic = storm.basicbolt(function (data) {
  this.emit(data.tuple)
}).declareOutputFields(['n'])

// By hand, and waits for the task ids before it acks.
var careful = storm.bolt(function (data) {
  var self = this
  this.emit(data.tuple, {anchors: [data.id]}).then(function (tasks) {
    if (tasks.length === 1) self.ack(data)
    else self.fail(data)
  })
}).declareOutputFields(['n'])

// Asynchronous: out of order.
var later = storm.asyncbolt(function (data, done) {
  var self = this
  setTimeout(function () {
    self.emit(data.tuple)
    done()
  }, Math.random() * 20)
}).declareOutputFields(['n'])

var builder = storm.topologybuilder()
builder.setSpout('numbers', numbers)
builder.setBolt('shell', {basic: basic, careful: careful, later: later}[process.env.BOLT])
storm.submit(builder.createTopology(), {}, function () {})
