//! The loop against the steps of the text over all jobs and all GPUs at every instant, which shares no code with it.

use super::run;
use crate::bare::Times;
use crate::bare_preemptive::tests::{Seen, by_attained, next_changes};
use crate::workload::{Cluster, Jobs, philly_like};

const GPUS: usize = 8;

/// How often a walk met what makes this policy another than `las`.
#[derive(Debug, Default)]
struct Met {
    /// Admitted jobs that waited on, at a decision.
    promised: usize,
    /// The same, of those that need several servers.
    promised_wide: usize,
    /// Running jobs that stayed without admission, at a decision.
    guests: usize,
    /// Those that started so, on one server and on several.
    guests_started: usize,
    wide_guests_started: usize,
    guests_stopped: usize,
    /// Stopped by another guest.
    chains: usize,
}

struct Walk<'a> {
    jobs: &'a Jobs,
    rack_gpus: usize,
    now: i64,
    ran_ns: Vec<i64>,
    /// GPUs of each job that runs.
    held: Vec<Option<Vec<usize>>>,
    times: Times,
    met: Met,
}

fn mark(gpus: &[usize], on: &mut [bool], value: bool) {
    for &gpu in gpus {
        on[gpu] = value;
    }
}

/// One server with the fewest free GPUs that are enough, its lowest ones.
fn on_one_server(gpus: usize, free: &[bool]) -> Option<Vec<usize>> {
    let servers = free.chunks(GPUS).enumerate().map(|(server, free)| {
        let slots = (0..GPUS).filter(|&slot| free[slot]);
        slots
            .map(|slot| server * GPUS + slot)
            .collect::<Vec<usize>>()
    });
    let best = servers
        .filter(|free| free.len() >= gpus)
        .min_by_key(Vec::len);
    best.map(|free| free[..gpus].to_vec())
}

/// The first whole servers of the rack with the fewest free GPUs that has enough of them.
fn on_whole_servers(gpus: usize, free: &[bool], rack_gpus: usize) -> Option<Vec<usize>> {
    let racks = free.chunks(rack_gpus).enumerate().filter_map(|(rack, of)| {
        let whole = (0..of.len()).filter(|&gpu| {
            let server = gpu / GPUS * GPUS;
            of[server..server + GPUS].iter().all(|&free| free)
        });
        let whole: Vec<usize> = whole.map(|gpu| rack * rack_gpus + gpu).collect();
        let count = of.iter().filter(|&&free| free).count();
        (whole.len() >= gpus).then(|| (count, whole[..gpus].to_vec()))
    });
    racks
        .min_by_key(|(count, _)| *count)
        .map(|(_, found)| found)
}

impl Walk<'_> {
    fn place(&self, job: usize, free: &mut [bool]) -> Option<Vec<usize>> {
        let gpus = self.jobs.gpus[job] as usize;
        let found = if gpus <= GPUS {
            on_one_server(gpus, free)?
        } else {
            on_whole_servers(gpus, free, self.rack_gpus)?
        };
        mark(&found, free, false);
        Some(found)
    }

    fn start(&mut self, job: usize, gpus: Vec<usize>) {
        self.held[job] = Some(gpus);
        self.times.starts += 1;
        if self.times.start_ns[job] < 0 {
            self.times.start_ns[job] = self.now;
        }
    }

    fn decide(&mut self, order: &[Seen], cluster_gpus: usize) {
        let mut left = cluster_gpus as i64;
        let admitted: Vec<bool> = order
            .iter()
            .map(|seen| {
                let fits = seen.gpus <= left;
                left -= if fits { seen.gpus } else { 0 };
                fits
            })
            .collect();
        let mut free = vec![true; cluster_gpus];
        let mut by_guest = vec![false; cluster_gpus];
        let ran: Vec<bool> = order
            .iter()
            .map(|seen| self.held[seen.job].is_some())
            .collect();
        for (at, seen) in order.iter().enumerate() {
            if let (true, Some(gpus)) = (admitted[at], &self.held[seen.job]) {
                mark(gpus, &mut free, false);
            }
        }
        for (at, seen) in order.iter().enumerate() {
            if admitted[at] && !ran[at] {
                if let Some(gpus) = self.place(seen.job, &mut free) {
                    self.start(seen.job, gpus);
                } else {
                    self.met.promised += 1;
                    self.met.promised_wide += usize::from(seen.gpus > 8);
                }
            }
        }
        for (at, seen) in order.iter().enumerate() {
            match self.held[seen.job].take_if(|_| !admitted[at]) {
                Some(gpus) if gpus.iter().all(|&gpu| free[gpu]) => {
                    mark(&gpus, &mut free, false);
                    self.held[seen.job] = Some(gpus);
                    self.met.guests += 1;
                }
                Some(gpus) => {
                    self.met.guests_stopped += 1;
                    self.met.chains += usize::from(gpus.iter().any(|&gpu| by_guest[gpu]));
                }
                None if !ran[at] && self.held[seen.job].is_none() => {
                    if let Some(gpus) = self.place(seen.job, &mut free) {
                        assert!(!admitted[at], "refused before, with more room");
                        mark(&gpus, &mut by_guest, true);
                        self.met.guests_started += 1;
                        self.met.wide_guests_started += usize::from(seen.gpus > 8);
                        self.start(seen.job, gpus);
                    }
                }
                None => {}
            }
        }
    }

    fn seen(&self) -> Vec<Seen> {
        let jobs = self.jobs;
        let here = (0..jobs.len())
            .filter(|&job| jobs.arrival_ns[job] <= self.now && self.times.finish_ns[job] < 0);
        let mut here: Vec<Seen> = here
            .map(|job| Seen {
                job,
                gpus: i64::from(jobs.gpus[job]),
                left_ns: jobs.duration_ns[job] - self.ran_ns[job],
                ran_ns: self.ran_ns[job],
                first_ns: Some(self.times.start_ns[job])
                    .filter(|&at| at >= 0)
                    .unwrap_or(i64::MAX),
            })
            .collect();
        here.sort_by_key(|seen| (by_attained(seen), seen.job));
        here
    }

    /// Runs on to the next instant; false at the end.
    fn go_on(&mut self, order: &[Seen]) -> bool {
        let later = self.jobs.arrival_ns.iter().copied();
        let later = later.filter(|&at| at > self.now);
        let running = order.iter().filter(|seen| self.held[seen.job].is_some());
        let changes = running.flat_map(|seen| next_changes(seen, self.now));
        let Some(next) = later.chain(changes).min() else {
            return false;
        };
        for seen in order {
            if self.held[seen.job].is_some() {
                self.ran_ns[seen.job] += next - self.now;
                if self.ran_ns[seen.job] == self.jobs.duration_ns[seen.job] {
                    self.times.finish_ns[seen.job] = next;
                    self.held[seen.job] = None;
                }
            }
        }
        self.now = next;
        true
    }
}

fn walk(jobs: &Jobs, cluster: Cluster, servers_per_rack: u32) -> (Times, Met) {
    let mut walk = Walk {
        jobs,
        rack_gpus: servers_per_rack as usize * GPUS,
        now: 0,
        ran_ns: vec![0; jobs.len()],
        held: vec![None; jobs.len()],
        times: Times::new(jobs.len()),
        met: Met::default(),
    };
    loop {
        let order = walk.seen();
        walk.decide(&order, cluster.gpus() as usize);
        if !walk.go_on(&order) {
            return (walk.times, walk.met);
        }
    }
}

fn cluster(servers: u32) -> Cluster {
    Cluster {
        servers,
        gpus_per_server: GPUS as u32,
    }
}

fn agree(jobs: &Jobs, servers: u32, servers_per_rack: u32) -> Met {
    let (times, met) = walk(jobs, cluster(servers), servers_per_rack);
    assert_eq!(run(jobs, cluster(servers), servers_per_rack), times);
    met
}

#[test]
fn the_loop_agrees_with_a_walk_over_everything() {
    let mut stops = 0;
    for (offered, seed) in [(0.5, 1), (1.2, 2), (2.5, 3), (2.5, 4)] {
        for (servers, per_rack) in [(6, 6), (13, 5), (20, 4)] {
            let jobs = philly_like(500, cluster(servers), offered, seed);
            let met = agree(&jobs, servers, per_rack);
            stops += met.guests_stopped;
            if offered > 2.0 && per_rack == 4 {
                assert!(met.promised > 100 && met.guests > 1_000, "{met:?}");
            }
        }
    }
    assert!(stops > 3_000, "{stops}");
}

/// Gang sizes that do not fill a server, many wide ones, and times of which many are equal.
#[test]
fn the_loop_agrees_where_sizes_are_odd_and_times_tie() {
    let mut sum = Met::default();
    for seed in 0..30 {
        let servers = [7, 12, 40][seed as usize % 3];
        let mut jobs = philly_like(250, cluster(servers), 3.0, seed);
        for at in 0..jobs.len() {
            let draw = jobs.duration_ns[at];
            jobs.gpus[at] = [1, 2, 3, 1, 5, 8, 16, 24, 32][draw as usize % 9];
            jobs.duration_ns[at] = (draw / 300_000_000_000 + 1) * 300_000_000_000;
            jobs.arrival_ns[at] = jobs.arrival_ns[at] / 100_000_000_000 * 100_000_000_000;
        }
        let met = agree(&jobs, servers, 4);
        sum.promised += met.promised;
        sum.promised_wide += met.promised_wide;
        sum.guests_started += met.guests_started;
        sum.wide_guests_started += met.wide_guests_started;
        sum.guests_stopped += met.guests_stopped;
        sum.chains += met.chains;
    }
    assert!(sum.promised > sum.promised_wide + 100, "{sum:?}");
    assert!(sum.promised_wide > 1_000, "{sum:?}");
    assert!(
        sum.guests_started > sum.wide_guests_started + 1_000,
        "{sum:?}"
    );
    assert!(sum.wide_guests_started > 30, "{sum:?}");
    assert!(sum.guests_stopped > 1_000 && sum.chains > 100, "{sum:?}");
}

/// All at once, so that arrivals tell nothing of the time a run takes, and nothing at all.
#[test]
fn the_loop_agrees_on_a_backlog_and_on_nothing() {
    let mut jobs = philly_like(300, cluster(9), 2.5, 6);
    jobs.arrival_ns.fill(0);
    agree(&jobs, 9, 4);
    agree(&Jobs::default(), 9, 4);
}

#[test]
#[should_panic(expected = "gangs of another kind")]
fn gangs_that_share_a_server_with_others_beside_whole_ones_are_refused() {
    let mut jobs = philly_like(3, cluster(9), 2.5, 6);
    jobs.gpus.fill(12);
    run(&jobs, cluster(9), 4);
}
