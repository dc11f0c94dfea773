package squall.bench;

import java.io.File;
import java.util.Map;
import org.apache.storm.Config;
import org.apache.storm.Constants;
import org.apache.storm.StormSubmitter;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * One constant tuple, not acked, from a spout to a bolt that counts, until FOLDER/stop exists.
 *
 * <p>Constant NAME FOLDER submits it; WordCount NAME kills it. Its files are those of WordCount,
 * with one pass, and tuples that count as acked when they are sent.
 */
public final class Constant {
  private Constant() {}

  public static final class Source extends BaseRichSpout {
    private static final long WRITE_NANOS = 200_000_000L;
    private final String folder;
    private SpoutOutputCollector collector;
    private Values value;
    private String name;
    private long sent;
    private boolean stopped;
    private long writeAt;

    public Source(String folder) {
      this.folder = folder;
    }

    @Override
    public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector out) {
      collector = out;
      name = "lines-" + context.getThisTaskId();
      value = new Values("constant");
    }

    @Override
    public void nextTuple() {
      if (stopped || (sent & 1023) == 0) {
        long now = System.nanoTime();
        if (now - writeAt > WRITE_NANOS) {
          writeAt = now;
          stopped = stopped || new File(folder, "stop").exists();
          int over = stopped ? 1 : 0;
          WordCount.write(folder, name, sent + " " + sent + " 0 " + over + " " + over);
        }
      }
      if (!stopped) {
        sent++;
        collector.emit(value);
      }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("value"));
    }
  }

  public static final class Sink extends BaseRichBolt {
    private final String folder;
    private String name;
    private OutputCollector collector;
    private long taken;

    public Sink(String folder) {
      this.folder = folder;
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector out) {
      collector = out;
      name = "count-" + context.getThisTaskId();
    }

    @Override
    public void execute(Tuple tuple) {
      if (tuple.getSourceStreamId().equals(Constants.SYSTEM_TICK_STREAM_ID)) {
        if (new File(folder, "stop").exists()) {
          WordCount.write(folder, name, "constant " + taken + "\n");
        }
      } else {
        taken++;
      }
      collector.ack(tuple);
    }

    @Override
    public Map<String, Object> getComponentConfiguration() {
      return Map.of(Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS, 1);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {}
  }

  public static void main(String[] args) throws Exception {
    TopologyBuilder builder = new TopologyBuilder();
    builder.setSpout("source", new Source(args[1]), 1);
    builder.setBolt("sink", new Sink(args[1]), 1).shuffleGrouping("source");
    Config conf = new Config();
    conf.setNumWorkers(1);
    conf.setNumAckers(0);
    // Batches help where nothing is acked.
    conf.put(Config.TOPOLOGY_PRODUCER_BATCH_SIZE, 1000);
    conf.put(Config.TOPOLOGY_DISABLE_LOADAWARE_MESSAGING, true);
    StormSubmitter.submitTopology(args[0], conf, builder.createTopology());
  }
}
