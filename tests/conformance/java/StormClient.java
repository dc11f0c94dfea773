// What a user of Apache Storm does: submit, list and kill by Storm's published client. The
// configuration is the storm.yaml of the class path. Each line of stdin is one step; each step
// prints one line, "ok ..." or the simple name of the exception that ended it.
//
//     submit NAME FILE       a topology (Thrift, binary protocol) with the jar of -Dstorm.jar
//     list                   the names of topologies
//     kill NAME
//     as JAAS_FILE           who the next steps are
//     doas USER              whom the next steps act for

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import org.apache.storm.StormSubmitter;
import org.apache.storm.generated.KillOptions;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.generated.TopologySummary;
import org.apache.storm.thrift.TDeserializer;
import org.apache.storm.thrift.protocol.TBinaryProtocol;
import org.apache.storm.utils.NimbusClient;
import org.apache.storm.utils.Utils;

public class StormClient {
    private static final Map<String, Object> conf = Utils.readStormConfig();

    public static void main(String[] arguments) throws Exception {
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
        for (String line = steps.readLine(); line != null; line = steps.readLine()) {
            System.out.println("step: " + outcome(line.split(" ")));
        }
        System.exit(0); // the login's thread, which renews tickets, would not end
    }

    private static String outcome(String[] step) {
        try {
            return "ok" + run(step);
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return cause.getClass().getSimpleName() + " " + cause.getMessage();
        }
    }

    private static String run(String[] step) throws Exception {
        switch (step[0]) {
            case "as":
                conf.put("java.security.auth.login.config", step[1]);
                return "";
            case "doas":
                conf.put("storm.doAsUser", step[1]);
                return "";
            case "submit":
                StormTopology topology = new StormTopology();
                byte[] bytes = Files.readAllBytes(Path.of(step[2]));
                new TDeserializer(new TBinaryProtocol.Factory()).deserialize(topology, bytes);
                StormSubmitter.submitTopology(step[1], new HashMap<>(), topology);
                return "";
            default:
                try (NimbusClient client = NimbusClient.Builder.withConf(conf).build()) {
                    if (step[0].equals("list")) {
                        TreeSet<String> names = new TreeSet<>();
                        for (TopologySummary one : client.getClient().getTopologySummaries()) {
                            names.add(one.get_name());
                        }
                        return " " + String.join(",", names);
                    }
                    KillOptions now = new KillOptions();
                    now.set_wait_secs(0);
                    client.getClient().killTopologyWithOpts(step[1], now);
                    return "";
                }
        }
    }
}
