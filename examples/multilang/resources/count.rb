require_relative 'storm'

class Count < Storm::BasicBolt
  def prepare(_conf, _context)
    @counts = Hash.new(0)
  end

  def process(tup)
    @counts[tup['word']] += 1
    emit([tup['word'], @counts[tup['word']]], need_task_ids: false)
  end
end

Count.new.run
