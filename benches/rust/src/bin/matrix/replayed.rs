//! What the engine alone costs when saturated: runs whose decisions are read from a list.

use gangline_benches::bare;
use gangline_benches::contender::{options, policy, run, summary};
use gangline_benches::replay::Recording;
use gangline_benches::workload::{Cluster, Load, philly_like};
use gangline_benches::worlds::world;

use crate::{least, one_run, timed};

/// Prints time per job of each policy, of its plans given again, and of the bare FIFO loop.
pub(crate) fn measure(count: usize, repeats: usize, policies: &[&str]) {
    let jobs = philly_like(count, Cluster::PUBLISHED, Load::Saturated.offered(), 1);
    let world = world(&jobs, Cluster::PUBLISHED);
    for name in policies {
        let mut recording = Recording::new(policy(name).expect("checked at the start"));
        let recorded = run(&world, &mut recording, options(None))
            .output()
            .expect("memory for a benchmark");
        let replay = recording.replay();
        let (mut bare_s, mut policy_s, mut replay_s) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..repeats {
            bare_s.push(timed(|| bare::fifo(&jobs, Cluster::PUBLISHED)).0);
            policy_s.push(one_run(&world, name).0);
            let mut again = replay.clone();
            let (seconds, engine) = timed(|| run(&world, &mut again, options(None)));
            replay_s.push(seconds);
            let output = engine.output().expect("memory for a benchmark");
            assert_eq!(output.finish_s, recorded.finish_s, "{name}: the same run");
        }
        let per_job = |seconds: Vec<f64>| least(seconds) * 1e9 / count as f64;
        println!(
            concat!(
                r#"{{"kind":"replay","jobs":{},"policy":"{}","ns_per_job":{:.1}"#,
                r#","replay_ns_per_job":{:.1},"bare_fifo_ns_per_job":{:.1},"preemptions":{}}}"#,
            ),
            count,
            name,
            per_job(policy_s),
            per_job(replay_s),
            per_job(bare_s),
            summary(&recorded, "preemptions"),
        );
    }
}
