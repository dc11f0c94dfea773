'use strict';
// A spout in Storm's multi-language protocol: messages are JSON, each followed by a line "end".
const fs = require('fs');
const path = require('path');
const readline = require('readline');

const SENTENCES = ['the cow jumped over the moon', 'an apple a day keeps the doctor away'];
let lines = [];
let connected = false;

function send(message) {
  process.stdout.write(JSON.stringify(message) + '\nend\n');
}

function receive(message) {
  if (!connected) {
    connected = true;
    fs.writeFileSync(path.join(message.pidDir, String(process.pid)), '');
    send({ pid: process.pid });
  } else if (message.command === 'next') {
    setTimeout(() => {
      const sentence = SENTENCES[Math.floor(Math.random() * SENTENCES.length)];
      send({ command: 'emit', tuple: [sentence], id: `${Date.now()}-${Math.random()}`, need_task_ids: false });
      send({ command: 'sync' });
    }, 100);
  } else if (!Array.isArray(message)) {
    send({ command: 'sync' }); // ack, fail, activate, deactivate
  }
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  if (line === 'end') {
    const text = lines.join('\n');
    lines = [];
    receive(JSON.parse(text));
  } else {
    lines.push(line);
  }
});
