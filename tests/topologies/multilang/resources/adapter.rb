# Components of our Ruby adapter, by $KIND.
require ENV.fetch('ADAPTER')

class Basic < Storm::BasicBolt
  def prepare(conf, context)
    puts 'a stray print'
    log("prepared #{component_id} #{task_id} of #{conf['topology.name']}", :warn)
  end

  def process(tup)
    raise ArgumentError, 'not seven, the first time' if tup['n'] == 7 && first?

    report_metric('seen', tup['n'])
    ids = emit([tup['n'], 'ü∂ß', [nil, true, 1.5, { 'deep' => [2**40, -1, -200, -70_000] }]])
    raise "#{ids} are not one task" unless ids.length == 1
  end

  def first?
    seen = @seven
    @seven = true
    seen.nil?
  end
end

class Careful < Storm::Bolt
  def process(tup)
    if tup.tick?
      ack(tup)
      return
    end
    emit([tup[0], 'default'], anchors: tup, need_task_ids: false)
    emit([tup[0], 'side'], anchor: tup, stream: 'side')
    task = context['task->component'].key('sink').to_i
    emit_direct(task, [tup[0], 'direct'], anchors: [tup], stream: 'direct')
    tup[0] == 5 && !@failed ? (@failed = true; fail(tup)) : ack(tup)
  end
end

class Raises < Storm::Bolt
  def process(_tup)
    raise 'out of order'
  end
end

class Numbers < Storm::Spout
  def open(_conf, _context)
    @left = (0...50).to_a
    @pending = {}
  end

  def activate
    logInfo 'activated'
  end

  def nextTuple
    return if @left.empty?

    n = @left.shift
    @pending[n] = true
    emit([n], id: n, need_task_ids: n.even?)
  end

  def ack(id)
    raise "no message #{id}" unless @pending.delete(id)
    emit([-1 - id])
  end

  def fail(id)
    @left << id
  end
end

{ 'basic' => Basic, 'careful' => Careful, 'raises' => Raises, 'spout' => Numbers }.fetch(ENV['KIND']).new.run
