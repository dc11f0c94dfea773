// Apache Storm 2: the same topology in Java.
public class WordCount {
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
    private Map<String, Integer> counts = new HashMap<>();

    public void execute(Tuple tup, BasicOutputCollector out) {
      String word = tup.getString(0);
      int count = counts.merge(word, 1, Integer::sum);
      out.emit(new Values(word, count));
    }

    public void declareOutputFields(OutputFieldsDeclarer d) {
      d.declare(new Fields("word", "count"));
    }
  }

  public static void main(String[] args) throws Exception {
    TopologyBuilder builder = new TopologyBuilder();
    builder.setSpout("lines", new Lines());
    builder.setBolt("split", new Split(), 2).shuffleGrouping("lines");
    builder.setBolt("count", new Count(), 2)
        .fieldsGrouping("split", new Fields("word"));
    StormSubmitter.submitTopology("words", new Config(), builder.createTopology());
  }
}
