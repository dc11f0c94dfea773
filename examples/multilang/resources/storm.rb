# frozen_string_literal: true

# Shell components in Ruby: spouts and bolts that run as child processes of a worker.
#
#     require './storm'
#
#     class Split < Storm::BasicBolt
#       def process(tup)
#         tup['line'].split.each { |word| emit([word]) }
#       end
#     end
#
#     Split.new.run
#
# It speaks Storm's multi-language protocol on stdin and stdout, so that the same file runs under
# Squall and under Apache Storm, and it has the methods of Storm's own storm.rb. It needs Ruby 2.7
# or later and nothing else; copy it into `resources/`, or install the gem.
#
# Messages are JSON or MessagePack: the first byte of the worker's first message tells which.
# `puts` and `print` are safe: they go to stderr, and from there to the worker's log.
module Storm
  VERSION = '1.0.0'

  # The worker has closed the pipe: it has ended, or this process is to end.
  class WentAway < StandardError; end

  # A tuple that a bolt receives. `tup[0]` is a value by position, `tup['word']` by field.
  class Tuple
    attr_accessor :id, :component, :stream, :task, :values, :fields

    def initialize(id, component, stream, task, values, fields = [])
      @id = id
      @component = component
      @stream = stream
      @task = task
      @values = values
      @fields = fields
    end

    def self.from_hash(hash, fields = [])
      new(*hash.values_at('id', 'comp', 'stream', 'task', 'tuple'), fields)
    end

    # Raises KeyError for a field that the stream does not have.
    def [](key)
      return @values[key] if key.is_a?(Integer)

      index = @fields.index(key.to_s)
      raise KeyError, "no field #{key.to_s.inspect}; it has #{@fields.inspect}" if index.nil?

      @values[index]
    end

    def heartbeat?
      @stream == '__heartbeat'
    end
    alias is_heartbeat heartbeat?

    # Whether it is a tick tuple (topology.tick.tuple.freq.secs).
    def tick?
      @component == '__system' && @stream == '__tick'
    end
    alias is_tick tick?
  end

  # Messages as JSON, each followed by a line "end".
  class JsonPipe
    def initialize(input, output)
      require 'json'
      @input = input
      @output = output
    end

    def read
      lines = []
      while (line = @input.gets)
        return JSON.parse(lines.join) if line.chomp == 'end'

        lines << line.force_encoding(Encoding::UTF_8)
      end
      raise WentAway
    end

    def write(message)
      @output.write("#{JSON.generate(message)}\nend\n")
      @output.flush
    rescue Errno::EPIPE
      raise WentAway
    end
  end

  # Messages as MessagePack, one after the other (https://msgpack.org: "Formats").
  class MessagePackPipe
    def initialize(input, output)
      @input = input
      @output = output
    end

    def read
      unpack
    end

    def write(message)
      @output.write(pack(message, String.new(encoding: Encoding::BINARY)))
      @output.flush
    rescue Errno::EPIPE
      raise WentAway
    end

    private

    def take(count)
      return String.new if count.zero?

      data = @input.read(count)
      raise WentAway if data.nil? || data.bytesize < count

      data
    end

    def number(format, count)
      take(count).unpack1(format)
    end

    NUMBERS = {
      0xca => ['g', 4], 0xcb => ['G', 8],
      0xcc => ['C', 1], 0xcd => ['n', 2], 0xce => ['N', 4], 0xcf => ['Q>', 8],
      0xd0 => ['c', 1], 0xd1 => ['s>', 2], 0xd2 => ['l>', 4], 0xd3 => ['q>', 8]
    }.freeze
    LENGTHS = [['C', 1], ['n', 2], ['N', 4]].freeze
    private_constant :NUMBERS, :LENGTHS

    def unpack
      kind = number('C', 1)
      return kind if kind < 0x80
      return kind - 0x100 if kind >= 0xe0
      return hash_of(kind & 0x0f) if kind < 0x90
      return list_of(kind & 0x0f) if kind < 0xa0
      return text_of(kind & 0x1f) if kind < 0xc0
      return number(*NUMBERS[kind]) if NUMBERS.key?(kind)

      unpack_other(kind)
    end

    def unpack_other(kind)
      case kind
      when 0xc0 then nil
      when 0xc2 then false
      when 0xc3 then true
      when 0xc4..0xc6 then take(number(*LENGTHS[kind - 0xc4]))
      when 0xd9..0xdb then text_of(number(*LENGTHS[kind - 0xd9]))
      when 0xdc, 0xdd then list_of(number(*LENGTHS[kind - 0xdb]))
      when 0xde, 0xdf then hash_of(number(*LENGTHS[kind - 0xdd]))
      else raise ArgumentError, format('MessagePack type 0x%02x is not supported', kind)
      end
    end

    def text_of(length)
      take(length).force_encoding(Encoding::UTF_8)
    end

    def list_of(count)
      Array.new(count) { unpack }
    end

    def hash_of(count)
      Array.new(count) { [unpack, unpack] }.to_h
    end

    def pack(value, out)
      case value
      when nil then out << 0xc0
      when false then out << 0xc2
      when true then out << 0xc3
      when Integer then pack_integer(value, out)
      when Float then out << 0xcb << [value].pack('G')
      when Symbol then pack_text(value.to_s, out)
      when String then pack_text(value, out)
      when Array
        pack_length(value.length, 0x90, 16, [nil, 0xdc, 0xdd], out)
        value.each { |item| pack(item, out) }
      when Hash
        pack_length(value.length, 0x80, 16, [nil, 0xde, 0xdf], out)
        value.each { |key, item| pack(item, pack(key, out)) }
      else raise ArgumentError, "MessagePack cannot carry #{value.inspect} (#{value.class})"
      end
      out
    end

    def pack_integer(value, out)
      if value >= -32 && value < 128 then out << [value].pack('c')
      elsif value.between?(-(2**31), (2**31) - 1) then out << 0xd2 << [value].pack('l>')
      elsif value.between?(-(2**63), (2**63) - 1) then out << 0xd3 << [value].pack('q>')
      elsif value.between?(0, (2**64) - 1) then out << 0xcf << [value].pack('Q>')
      else raise ArgumentError, "MessagePack cannot carry #{value}, which has more than 64 bits"
      end
    end

    def pack_text(text, out)
      binary = text.encoding == Encoding::BINARY
      text = text.encode(Encoding::UTF_8) unless binary
      if binary
        pack_length(text.bytesize, nil, 0, [0xc4, 0xc5, 0xc6], out)
      else
        pack_length(text.bytesize, 0xa0, 32, [0xd9, 0xda, 0xdb], out)
      end
      out << text.b
    end

    def pack_length(length, short, short_max, kinds, out)
      if length < short_max then out << (short | length)
      elsif kinds[0] && length < 2**8 then out << kinds[0] << length
      elsif length < 2**16 then out << kinds[1] << [length].pack('n')
      else out << kinds[2] << [length].pack('N')
      end
    end
  end

  # What spouts and bolts have in common: the calls to the worker.
  module Protocol
    LEVELS = { trace: 0, debug: 1, info: 2, warn: 3, error: 4 }.freeze

    # The configuration and the context of the worker's first message, from `open` or `prepare` on.
    attr_reader :conf, :context

    # Write to the worker's log. The level is a name (:info) or Storm's number (2).
    def log(message, level = :info)
      level = LEVELS.fetch(level.to_sym) unless level.is_a?(Integer)
      tell(command: 'log', msg: message.to_s, level: level)
    end

    def logTrace(message)
      log(message, :trace)
    end

    def logDebug(message)
      log(message, :debug)
    end

    def logInfo(message)
      log(message, :info)
    end

    def logWarn(message)
      log(message, :warn)
    end

    def logError(message)
      log(message, :error)
    end

    # Report an error, text or an exception, which `storm get-errors` shows, and go on.
    def report_error(error)
      error = error.full_message(highlight: false) if error.is_a?(Exception)
      tell(command: 'error', msg: error.to_s)
    end
    alias reportError report_error

    # Update a metric of this name. (Apache Storm needs a metric that is registered under it.)
    def report_metric(name, value)
      tell(command: 'metrics', name: name.to_s, params: value)
    end

    # The id of this task, and of its component.
    def task_id
      @context['taskid']
    end

    def component_id
      @context['componentid']
    end

    # Serve the worker until it closes the pipe. An exception that no method handles is reported and
    # ends the process with status 1; the worker then starts another one.
    def run(input: nil, output: nil)
      open_pipe(input, output)
      shake_hands
      begin
        begin_work
        loop { serve }
      rescue WentAway, SystemExit, SignalException # SIGTERM: the worker asks it to end
        raise
      rescue Exception => error # rubocop:disable Lint/RescueException
        report_error(error)
        Kernel.exit(1)
      end
    rescue WentAway
      nil
    end

    private

    def open_pipe(input, output)
      @waiting_ids = []
      @waiting_commands = []
      input ||= $stdin
      if output.nil?
        output = $stdout.dup
        $stdout.reopen($stderr) # also for programs that this one starts
      end
      [input, output].each(&:binmode)
      first = input.getbyte
      raise WentAway if first.nil?

      input.ungetbyte(first)
      json = first < 0x80 # '{' or a blank; a map of MessagePack begins with 0x80 or more
      @pipe = (json ? JsonPipe : MessagePackPipe).new(input, output)
    end

    def shake_hands
      setup = @pipe.read
      @conf = setup['conf'] || {}
      @context = setup['context'] || {}
      @fields = @context['source->stream->fields'] || {}
      File.write(File.join(setup['pidDir'], Process.pid.to_s), '')
      tell(pid: Process.pid)
    end

    def tell(message)
      @pipe.write(message)
    end

    def read_command
      return @waiting_commands.shift unless @waiting_commands.empty?

      loop do
        message = @pipe.read
        return message unless message.is_a?(Array)

        @waiting_ids << message
      end
    end

    def read_task_ids
      return @waiting_ids.shift unless @waiting_ids.empty?

      loop do
        message = @pipe.read
        return message if message.is_a?(Array)

        @waiting_commands << message
      end
    end

    # Sends an emit, and returns the ids of the tasks that get the tuple, if they are wanted.
    def send_emit(message, options)
      stream = options[:stream]
      task = options[:direct_task] || options[:direct]
      wants_ids = task.nil? && options.fetch(:need_task_ids, true)
      message[:stream] = stream.to_s unless stream.nil?
      message[:task] = task unless task.nil?
      message[:need_task_ids] = false unless wants_ids || task
      tell(message)
      wants_ids ? read_task_ids : []
    end
  end

  # A bolt that acks, fails and anchors by itself.
  class Bolt
    include Protocol

    # Called once, before anything else.
    def prepare(conf, context); end

    # Called for each tuple.
    def process(_tup)
      raise NotImplementedError, "#{self.class} does not define process(tup)"
    end

    # Emit a tuple. Options: anchors: or anchor: (tuples), stream:, direct_task:, and need_task_ids:
    # false, which saves a round trip. Returns the ids of the tasks that get it.
    def emit(values, options = {})
      anchors = options[:anchors] || options[:anchor] || default_anchors
      anchors = [anchors] unless anchors.is_a?(Array)
      ids = anchors.map { |anchor| anchor.is_a?(Tuple) ? anchor.id : anchor }
      send_emit({ command: 'emit', anchors: ids, tuple: values }, options)
    end

    # Emit a tuple to one task, on a direct stream.
    def emit_direct(task, values, options = {})
      emit(values, options.merge(direct_task: task))
    end

    def ack(tup)
      tell(command: 'ack', id: tup.id)
    end

    def fail(tup)
      tell(command: 'fail', id: tup.id)
    end

    # Tell the worker that this process is alive, in the middle of work that takes longer than
    # topology.subprocess.timeout.secs.
    def keep_alive
      tell(command: 'sync')
    end

    private

    def default_anchors
      []
    end

    def begin_work
      prepare(@conf, @context)
    end

    def serve
      message = read_command
      fields = @fields.dig(message['comp'], message['stream']) || []
      tup = Tuple.from_hash(message, fields)
      if tup.heartbeat?
        tell(command: 'sync')
      else
        work_on(tup)
      end
    end

    def work_on(tup)
      process(tup)
    end
  end

  # A bolt whose emits are anchored to its tuple, which is acked when `process` returns. If
  # `process` raises, the error is reported and the tuple fails.
  class BasicBolt < Bolt
    private

    def default_anchors
      @current.nil? ? [] : [@current]
    end

    def work_on(tup)
      @current = tup
      begin
        process(tup)
      rescue WentAway, SystemExit
        raise
      rescue StandardError, NotImplementedError => error
        report_error(error)
        fail(tup)
      else
        ack(tup)
      ensure
        @current = nil
      end
    end
  end

  # A source of tuples. `nextTuple` may also be called `next_tuple`.
  class Spout
    include Protocol

    # Called once, before anything else.
    def open(conf, context); end

    # Emit a message, or return if there is none.
    def next_tuple
      raise NotImplementedError, "#{self.class} does not define nextTuple"
    end

    def nextTuple
      next_tuple
    end

    # The message with this id was processed.
    def ack(id); end

    # The message with this id failed or timed out.
    def fail(id); end

    # Called when the topology is activated and deactivated.
    def activate; end

    def deactivate; end

    # Emit a tuple. Options: id: (its acks and fails come back with it), stream:, direct_task:, and
    # need_task_ids: false. Returns the ids of the tasks that get it.
    def emit(values, options = {})
      message = { command: 'emit', tuple: values }
      message[:id] = options[:id] unless options[:id].nil?
      send_emit(message, options)
    end

    # Emit a tuple to one task, on a direct stream.
    def emit_direct(task, values, options = {})
      emit(values, options.merge(direct_task: task))
    end

    private

    def begin_work
      open(@conf, @context)
    end

    def serve
      message = read_command
      case message['command']
      when 'next' then nextTuple
      when 'ack' then ack(message['id'])
      when 'fail' then fail(message['id'])
      when 'activate' then activate
      when 'deactivate' then deactivate
      end
      tell(command: 'sync')
    end
  end
end
