//! The loops against a walk over all jobs at every instant, which shares no code with them.

use super::{las, srsf, srtf};
use crate::bare::Times;
use crate::workload::{Cluster, Jobs, philly_like};

/// What the order asks of an unfinished job.
pub(super) struct Seen {
    pub(super) job: usize,
    pub(super) gpus: i64,
    pub(super) left_ns: i64,
    pub(super) ran_ns: i64,
    /// First start, at the end of time while there is none.
    pub(super) first_ns: i64,
}

type Rank = fn(&Seen) -> (i64, i64, i64);

fn by_time(seen: &Seen) -> (i64, i64, i64) {
    (seen.left_ns, 0, 0)
}

fn by_service(seen: &Seen) -> (i64, i64, i64) {
    (seen.left_ns * seen.gpus, seen.gpus, 0)
}

pub(super) fn by_attained(seen: &Seen) -> (i64, i64, i64) {
    let attained_gpu_ns = seen.ran_ns * seen.gpus;
    let passed = |&limit: &i64| attained_gpu_ns >= limit * 1_000_000_000;
    let queue = [3_250, 7_200].iter().filter(|&limit| passed(limit)).count() as i64;
    (queue, seen.first_ns, 0)
}

/// Instants after `now` at which a job that runs may change its place: the end, and the limits of `las`.
pub(super) fn next_changes(seen: &Seen, now: i64) -> impl Iterator<Item = i64> {
    let limit = |gpu_s: i64| {
        let ran_ns = (gpu_s * 1_000_000_000 + seen.gpus - 1) / seen.gpus;
        now + ran_ns - seen.ran_ns
    };
    let changes = [now + seen.left_ns, limit(3_250), limit(7_200)];
    changes.into_iter().filter(move |&at| at > now)
}

fn plain(jobs: &Jobs, gpus: u32, rank: Rank) -> Times {
    let n = jobs.len();
    let mut times = Times::new(n);
    let mut ran_ns = vec![0; n];
    let mut runs = vec![false; n];
    let mut now = 0;
    loop {
        let seen = |job: usize| Seen {
            job,
            gpus: i64::from(jobs.gpus[job]),
            left_ns: jobs.duration_ns[job] - ran_ns[job],
            ran_ns: ran_ns[job],
            first_ns: Some(times.start_ns[job])
                .filter(|&at| at >= 0)
                .unwrap_or(i64::MAX),
        };
        let here = (0..n).filter(|&job| jobs.arrival_ns[job] <= now && times.finish_ns[job] < 0);
        let mut here: Vec<Seen> = here.map(seen).collect();
        here.sort_by_key(|seen| (rank(seen), seen.job));
        let later = jobs.arrival_ns.iter().copied().filter(|&at| at > now);
        let mut next = later.min().unwrap_or(i64::MAX);
        let mut free = i64::from(gpus);
        let mut running = Vec::new();
        for seen in here {
            let fits = seen.gpus <= free;
            if fits {
                free -= seen.gpus;
                next = next_changes(&seen, now).fold(next, i64::min);
                running.push(seen.job);
            }
            if fits && !runs[seen.job] {
                times.starts += 1;
                if times.start_ns[seen.job] < 0 {
                    times.start_ns[seen.job] = now;
                }
            }
            runs[seen.job] = fits;
        }
        if next == i64::MAX {
            return times;
        }
        for job in running {
            ran_ns[job] += next - now;
            if ran_ns[job] == jobs.duration_ns[job] {
                times.finish_ns[job] = next;
            }
        }
        now = next;
    }
}

fn all_agree(jobs: &Jobs, cluster: Cluster) {
    let gpus = cluster.gpus();
    assert_eq!(srtf(jobs, cluster), plain(jobs, gpus, by_time));
    assert_eq!(srsf(jobs, cluster), plain(jobs, gpus, by_service));
    assert_eq!(las(jobs, cluster), plain(jobs, gpus, by_attained));
}

const SMALL: Cluster = Cluster {
    servers: 6,
    gpus_per_server: 8,
};

#[test]
fn the_loops_agree_with_a_walk_over_everything() {
    for (offered, seed) in [(0.5, 1), (1.2, 2), (2.5, 3), (2.5, 4)] {
        all_agree(&philly_like(500, SMALL, offered, seed), SMALL);
    }
}

/// Gang sizes that do not divide each other and times of which many are equal.
#[test]
fn the_loops_agree_where_sizes_are_odd_and_times_tie() {
    for seed in 0..6 {
        let mut jobs = philly_like(300, SMALL, 4.0, seed);
        for at in 0..jobs.len() {
            let draw = jobs.duration_ns[at];
            jobs.gpus[at] = [1, 2, 3, 5, 7, 12, 48][draw as usize % 7];
            jobs.duration_ns[at] = (draw / 600_000_000_000 + 1) * 600_000_000_000;
            jobs.arrival_ns[at] = jobs.arrival_ns[at] / 300_000_000_000 * 300_000_000_000;
        }
        all_agree(&jobs, SMALL);
    }
}

#[test]
fn jobs_are_stopped_when_the_cluster_is_saturated() {
    let jobs = philly_like(2_000, SMALL, 2.5, 5);
    for times in [srtf(&jobs, SMALL), srsf(&jobs, SMALL), las(&jobs, SMALL)] {
        assert!(times.starts > 3_000, "{}", times.starts);
    }
}

#[test]
fn nothing_to_do_is_done() {
    all_agree(&Jobs::default(), SMALL);
}

/// All at once, so that arrivals tell nothing of the time a run takes.
#[test]
fn the_loops_agree_on_a_backlog() {
    let mut jobs = philly_like(150, SMALL, 2.5, 6);
    jobs.arrival_ns.fill(0);
    all_agree(&jobs, SMALL);
}
