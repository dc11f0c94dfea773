import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import org.apache.storm.windowing.CountEvictionPolicy;
import org.apache.storm.windowing.CountTriggerPolicy;
import org.apache.storm.windowing.DefaultEvictionContext;
import org.apache.storm.windowing.EvictionPolicy;
import org.apache.storm.windowing.TimeEvictionPolicy;
import org.apache.storm.windowing.TriggerPolicy;
import org.apache.storm.windowing.WaterMarkEvent;
import org.apache.storm.windowing.WatermarkCountEvictionPolicy;
import org.apache.storm.windowing.WatermarkCountTriggerPolicy;
import org.apache.storm.windowing.WatermarkTimeEvictionPolicy;
import org.apache.storm.windowing.WatermarkTimeTriggerPolicy;
import org.apache.storm.windowing.WindowLifecycleListener;
import org.apache.storm.windowing.WindowManager;

/** Plays the cases of test_manager in Storm's WindowManager: a line for each, in and out. */
class StormWindows implements WindowLifecycleListener<Integer> {
    private final boolean byWatermark;
    private StringBuilder step = new StringBuilder();

    StormWindows(boolean byWatermark) {
        this.byWatermark = byWatermark;
    }

    @Override
    public void onExpiry(List<Integer> gone) {
        say("[\"gone\", " + gone + "]");
    }

    @Override
    public void onActivation(List<Integer> all, List<Integer> fresh, List<Integer> expired, Long at) {
        // (Without watermarks the time is that of the machine.)
        say("[\"window\", " + all + ", " + fresh + ", " + expired + ", " + (byWatermark ? at : null) + "]");
    }

    private void say(String what) {
        step.append(step.length() == 0 ? "" : ", ").append(what);
    }

    private String taken() {
        String said = "[" + step + "]";
        step = new StringBuilder();
        return said;
    }

    /** A case: "watermark" or "arrival", the kinds and sizes of length and interval, the lag, and what comes. */
    static String play(String[] words) {
        boolean byWatermark = words[0].equals("watermark");
        boolean lengthInTuples = words[1].equals("count");
        int length = Integer.parseInt(words[2]);
        boolean slideInTuples = words[3].equals("count");
        int slide = Integer.parseInt(words[4]);
        int lag = Integer.parseInt(words[5]);
        StormWindows listener = new StormWindows(byWatermark);
        WindowManager<Integer> manager = new WindowManager<>(listener);
        EvictionPolicy<Integer, ?> evictor;
        if (lengthInTuples) {
            evictor = byWatermark ? new WatermarkCountEvictionPolicy<>(length) : new CountEvictionPolicy<>(length);
        } else {
            evictor = byWatermark ? new WatermarkTimeEvictionPolicy<>(length, lag) : new TimeEvictionPolicy<>(length);
        }
        manager.setEvictionPolicy(evictor);
        TriggerPolicy<Integer, ?> trigger = null;
        if (slideInTuples) {
            trigger = byWatermark
                ? new WatermarkCountTriggerPolicy<>(slide, manager, evictor, manager)
                : new CountTriggerPolicy<>(slide, manager, evictor);
        } else if (byWatermark) {
            trigger = new WatermarkTimeTriggerPolicy<>(slide, manager, evictor, manager);
        } else {
            trigger = new Silent();
        }
        manager.setTriggerPolicy(trigger);
        trigger.start();
        StringBuilder steps = new StringBuilder();
        int number = 0;
        for (int i = 6; i < words.length; i++) {
            long at = Long.parseLong(words[i].substring(1));
            switch (words[i].charAt(0)) {
                case 'a' -> manager.add(number++, at);
                case 'w' -> manager.add(new WaterMarkEvent<>(at));
                default -> { // what Storm's timer does at that time
                    evictor.setContext(new DefaultEvictionContext(at - 1, null, null, (long) slide));
                    manager.onTrigger();
                }
            }
            steps.append(i == 6 ? "" : ", ").append(listener.taken());
        }
        return "answer [" + steps + "]";
    }

    /** A trigger by a clock that never rings by itself. */
    static class Silent implements TriggerPolicy<Integer, Void> {
        @Override
        public void track(org.apache.storm.windowing.Event<Integer> event) {}

        @Override
        public void reset() {}

        @Override
        public void start() {}

        @Override
        public void shutdown() {}

        @Override
        public Void getState() {
            return null;
        }

        @Override
        public void restoreState(Void state) {}
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(play(line.split(" "))).append('\n');
        }
        System.out.print(out);
    }
}
