//! The cost of preemption by load: time per job from a cluster with free GPUs to a saturated one.

use gangline_benches::bare;
use gangline_benches::contender::summary;
use gangline_benches::workload::{Cluster, philly_like};
use gangline_benches::worlds::world;

use crate::{least, one_run, timed};

/// Offered loads: GPU-seconds that arrive per second, over the GPUs of the cluster.
const OFFERED: [f64; 7] = [0.8, 0.95, 1.05, 1.25, 1.5, 2.0, 2.5];

/// Prints the time and the preemptions per job of each policy at each load, with the bare FIFO loop on the same jobs
/// for comparison.
pub(crate) fn measure(count: usize, repeats: usize, policies: &[&str]) {
    for offered in OFFERED {
        let jobs = philly_like(count, Cluster::PUBLISHED, offered, 1);
        let world = world(&jobs, Cluster::PUBLISHED);
        let mut fifo_s = Vec::new();
        let mut engine_s = vec![Vec::new(); policies.len()];
        let mut preemptions = vec![0.0; policies.len()];
        for _ in 0..repeats {
            fifo_s.push(timed(|| bare::fifo(&jobs, Cluster::PUBLISHED)).0);
            for (at, name) in policies.iter().enumerate() {
                let (inside, (_, output)) = one_run(&world, name);
                engine_s[at].push(inside);
                preemptions[at] = summary(&output, "preemptions");
            }
        }
        let per_job = |seconds: Vec<f64>| least(seconds) * 1e9 / count as f64;
        let bare_ns = per_job(fifo_s);
        for ((name, seconds), preemptions) in policies.iter().zip(engine_s).zip(preemptions) {
            println!(
                concat!(
                    r#"{{"kind":"load","jobs":{},"offered":{},"policy":"{}""#,
                    r#","ns_per_job":{:.1},"bare_fifo_ns_per_job":{:.1},"preemptions":{}}}"#,
                ),
                count,
                offered,
                name,
                per_job(seconds),
                bare_ns,
                preemptions,
            );
        }
    }
}
