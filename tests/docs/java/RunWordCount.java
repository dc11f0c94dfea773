import java.util.*;
import java.util.concurrent.*;
import org.apache.storm.*;
import org.apache.storm.topology.*;
import org.apache.storm.topology.base.*;
import org.apache.storm.tuple.*;

/** Runs the page's WordCount in Storm's LocalCluster, and prints each word with its count. */
public class RunWordCount {
  static final Map<String, Integer> COUNTS = new ConcurrentSkipListMap<>();

  public static class Collect extends BaseBasicBolt {
    public void execute(Tuple tup, BasicOutputCollector out) {
      COUNTS.merge(tup.getString(0), tup.getInteger(1), Math::max);
    }

    public void declareOutputFields(OutputFieldsDeclarer d) {}
  }

  public static void main(String[] args) throws Exception {
    TopologyBuilder builder = WordCount.build(List.of("to be", "or not to be"));
    builder.setBolt("collect", new Collect()).globalGrouping("count");
    try (LocalCluster cluster = new LocalCluster.Builder().withSupervisors(1).build()) {
      cluster.submitTopology("words", new Config(), builder.createTopology());
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
      while (COUNTS.values().stream().mapToInt(n -> n).sum() < 6 && System.nanoTime() < end) {
        Thread.sleep(50);
      }
      COUNTS.forEach((word, count) -> System.out.println("counted " + word + " " + count));
      System.out.flush();
    }
    System.exit(0); // threads of Storm's remain
  }
}
