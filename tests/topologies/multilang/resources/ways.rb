# What Storm's own Ruby library does on the pipes: the pid before its file, every message in one
# write, task ids waited for, and a splitter that acks by itself.
require 'json'

$stdout.sync = true
$waiting_ids = []
$waiting_commands = []

def read
  text = +''
  loop do
    line = $stdin.gets
    exit 0 if line.nil?
    return JSON.parse(text) if line.chomp == 'end'
    text << line
  end
end

def tell(message)
  $stdout.write("#{JSON.generate(message)}\nend\n")
end

def read_ids
  return $waiting_ids.shift unless $waiting_ids.empty?
  loop do
    message = read
    return message if message.is_a?(Array)
    $waiting_commands << message
  end
end

def read_command
  return $waiting_commands.shift unless $waiting_commands.empty?
  loop do
    message = read
    return message unless message.is_a?(Array)
    $waiting_ids << message
  end
end

setup = read
tell(pid: Process.pid)
File.open("#{setup['pidDir']}/#{Process.pid}", 'w').close

if ENV['KIND'] == 'spout'
  left = (0...200).to_a
  loop do
    command = read_command
    case command['command']
    when 'next'
      unless left.empty?
        n = left.shift
        tell(command: 'emit', tuple: [n], id: n)
        read_ids
      end
    when 'fail'
      left << command['id']
    end
    tell(command: 'sync')
  end
else
  loop do
    tuple = read_command
    if tuple['stream'] == '__heartbeat'
      tell(command: 'sync')
      next
    end
    n = tuple['tuple'][0]
    3.times do |i|
      tell(command: 'emit', anchors: [tuple['id']], tuple: [n, i])
      tell(command: 'fail', id: tuple['id']) unless read_ids.length == 1
    end
    tell(command: 'ack', id: tuple['id'])
  end
end
