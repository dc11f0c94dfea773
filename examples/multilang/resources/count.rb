# Counts words. Storm's multi-language protocol: messages are JSON, each followed by a line "end".
require 'json'

$stdout.sync = true

def receive
  text = +''
  while (line = $stdin.gets)
    return JSON.parse(text) if line == "end\n"
    text << line
  end
  exit
end

def send_message(message)
  $stdout.write(JSON.generate(message) + "\nend\n")
end

handshake = receive
File.write(File.join(handshake['pidDir'], Process.pid.to_s), '')
send_message('pid' => Process.pid)

counts = Hash.new(0)
loop do
  message = receive
  next if message.is_a?(Array) # task ids: an answer to an emit

  if message['stream'] == '__heartbeat'
    send_message('command' => 'sync')
  else
    word = message['tuple'][0]
    counts[word] += 1
    send_message('command' => 'emit', 'anchors' => [message['id']], 'tuple' => [word, counts[word]],
                 'need_task_ids' => false)
    send_message('command' => 'ack', 'id' => message['id'])
  end
end
