// A bolt in the manner of Storm's own JavaScript library: reads whatever has arrived, answers task
// ids by callbacks in their order, and fails loudly when a list comes that no emit asked for.
var fs = require('fs')
var rest = ''
var waiting = []
var first = true

function send (message) {
  process.stdout.write(JSON.stringify(message) + '\nend\n')
}

function emit (tuple, anchor, callback) {
  waiting.push(callback)
  send({command: 'emit', tuple: tuple, stream: undefined, anchors: [anchor]})
}

function handle (message) {
  if (first) {
    first = false
    fs.closeSync(fs.openSync(message.pidDir + '/' + process.pid, 'w'))
    send({pid: process.pid})
  } else if (message instanceof Array) {
    var callback = waiting.shift()
    if (!callback) throw new Error('task ids that nobody asked for')
    callback(message)
  } else if (message.task === -1 && message.stream === '__heartbeat') {
    send({command: 'sync'})
  } else {
    var n = 0
    for (var i = 0; i < 3; i++) {
      emit([message.tuple[0], i], message.id, function (ids) {
        if (ids.length !== 1) throw new Error('task ids ' + ids)
        if (++n === 3) send({command: 'ack', id: message.id})
      })
    }
  }
}

process.stdin.setEncoding('utf8')
process.stdin.on('data', function (chunk) {
  var parts = (rest + chunk).split('\nend\n')
  rest = parts.pop()
  parts.forEach(function (part) { if (part) handle(JSON.parse(part)) })
})
process.stdin.on('end', function () { process.exit(0) })
