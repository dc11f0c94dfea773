// Apache Storm 2
import java.util.*;
import org.apache.storm.*;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.*;
import org.apache.storm.topology.base.*;
import org.apache.storm.tuple.*;

public class WordCount {
  public static class Lines extends BaseRichSpout {
    private final ArrayList<String> lines;
    private final Map<Object, String> pending = new HashMap<>();
    private SpoutOutputCollector out;
    private int id = 0;

    public Lines(List<String> lines) {
      this.lines = new ArrayList<>(lines);
    }

    public void open(Map<String, Object> conf, TopologyContext context,
        SpoutOutputCollector out) {
      this.out = out;
    }

    public void nextTuple() {
      if (!lines.isEmpty()) {
        send(++id, lines.remove(0));
      }
    }

    private void send(Object id, String line) {
      pending.put(id, line);
      out.emit(new Values(line), id);
    }

    public void ack(Object id) {
      pending.remove(id);
    }

    public void fail(Object id) {
      send(id, pending.get(id));
    }

    public void declareOutputFields(OutputFieldsDeclarer d) {
      d.declare(new Fields("line"));
    }
  }

  public static class Split extends BaseBasicBolt {
    public void execute(Tuple tup, BasicOutputCollector out) {
      for (String word : tup.getStringByField("line").split(" ")) {
        out.emit(new Values(word));
      }
    }

    public void declareOutputFields(OutputFieldsDeclarer d) {
      d.declare(new Fields("word"));
    }
  }

  public static class Count extends BaseBasicBolt {
    private final Map<String, Integer> counts = new HashMap<>();

    public void execute(Tuple tup, BasicOutputCollector out) {
      String word = tup.getStringByField("word");
      int count = counts.merge(word, 1, Integer::sum);
      out.emit(new Values(word, count));
    }

    public void declareOutputFields(OutputFieldsDeclarer d) {
      d.declare(new Fields("word", "count"));
    }
  }

  public static TopologyBuilder build(List<String> lines) {
    TopologyBuilder builder = new TopologyBuilder();
    builder.setSpout("lines", new Lines(lines));
    builder.setBolt("split", new Split(), 2).shuffleGrouping("lines");
    builder.setBolt("count", new Count(), 2)
        .fieldsGrouping("split", new Fields("word"));
    return builder;
  }

  public static void main(String[] args) throws Exception {
    StormSubmitter.submitTopology("words", new Config(),
        build(List.of("to be", "or not to be")).createTopology());
  }
}
