//! Workloads of the benchmarks: a pure function of (jobs, cluster, load, seed).
//!
//! Poisson arrivals, log-normal durations, gang sizes from a table shaped like the Philly trace: mostly single-GPU
//! jobs, and few gangs larger than a server. The cost is O(jobs).

/// Jobs as columns, sorted by arrival; the index is the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// Arrival of each job, in nanoseconds.
    pub arrival_ns: Vec<i64>,
    /// Gang size of each job.
    pub gpus: Vec<u32>,
    /// Isolated run time of each job, in nanoseconds.
    pub duration_ns: Vec<i64>,
}

impl Jobs {
    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.arrival_ns.len()
    }

    /// Returns whether the workload is empty.
    pub fn is_empty(&self) -> bool {
        self.arrival_ns.is_empty()
    }
}

/// A cluster of equal servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Number of servers.
    pub servers: u32,
    /// Number of GPUs of each server, at most 64.
    pub gpus_per_server: u32,
}

impl Cluster {
    /// The cluster of the published table: 2,000 servers of 8 GPUs.
    pub const PUBLISHED: Self = Self {
        servers: 2_000,
        gpus_per_server: 8,
    };

    /// Returns the number of GPUs of the cluster.
    pub fn gpus(self) -> u32 {
        self.servers * self.gpus_per_server
    }
}

/// Offered load: GPU-seconds that arrive per second, over the GPUs of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Half of the GPUs are busy, and no job waits.
    Light,
    /// The offered load is two and a half times the capacity of the cluster, so most jobs of a long run wait at the
    /// same time.
    Saturated,
}

impl Load {
    /// Both loads.
    pub const ALL: [Self; 2] = [Self::Light, Self::Saturated];

    /// Returns the offered load.
    pub fn offered(self) -> f64 {
        match self {
            Self::Light => 0.5,
            Self::Saturated => 2.5,
        }
    }

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Saturated => "saturated",
        }
    }
}

/// Gang sizes and their percentages. They have the shape of the Philly trace; the exact numbers are our own choice.
pub const GANGS: [(u32, u64); 6] = [(1, 80), (2, 5), (4, 6), (8, 6), (16, 2), (32, 1)];
/// Mean isolated duration.
pub const MEAN_DURATION_S: f64 = 3_600.0;
/// Spread of the log-normal durations. Real traces reach 2. At 1, shortest job first keeps one job in seven waiting
/// under [`Load::Saturated`], so its queue is long.
pub const SIGMA: f64 = 1.0;

const ARRIVALS: u64 = 1;
const DURATIONS: u64 = 2;
const GANG_SIZES: u64 = 3;

/// Returns one 64-bit draw of a counter-based generator (the finaliser of `SplitMix64`).
fn draw(seed: u64, purpose: u64, counter: u64) -> u64 {
    let mut z = seed
        .wrapping_add(purpose.wrapping_mul(0xD1B5_4A32_D192_ED03))
        .wrapping_add(counter.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns a uniform number in (0, 1). It is never 0, so its logarithm is finite.
fn uniform(seed: u64, purpose: u64, counter: u64) -> f64 {
    ((draw(seed, purpose, counter) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

fn gang(seed: u64, job: u64) -> u32 {
    let mut left = draw(seed, GANG_SIZES, job) % 100;
    for (gpus, share) in GANGS {
        if left < share {
            return gpus;
        }
        left -= share;
    }
    unreachable!("the shares of GANGS sum to 100")
}

fn duration_s(seed: u64, job: u64) -> f64 {
    // The method is that of Box and Muller. One normal number of the pair is enough here.
    let radius = libm::sqrt(-2.0 * libm::log(uniform(seed, DURATIONS, 2 * job)));
    let angle = std::f64::consts::TAU * uniform(seed, DURATIONS, 2 * job + 1);
    let normal = radius * libm::cos(angle);
    MEAN_DURATION_S * libm::exp(SIGMA * normal - SIGMA * SIGMA / 2.0)
}

/// Returns the mean gang size of [`GANGS`].
pub fn mean_gang() -> f64 {
    GANGS
        .iter()
        .map(|&(gpus, share)| f64::from(gpus) * share as f64)
        .sum::<f64>()
        / 100.0
}

/// Returns `jobs` jobs whose offered load on the cluster is `offered`.
pub fn philly_like(jobs: usize, cluster: Cluster, offered: f64, seed: u64) -> Jobs {
    let gap_s = mean_gang() * MEAN_DURATION_S / (offered * f64::from(cluster.gpus()));
    let mut table = Jobs::default();
    let mut now_ns = 0_i64;
    for job in 0..jobs as u64 {
        let gap = -gap_s * libm::log(uniform(seed, ARRIVALS, job));
        now_ns += nanoseconds(gap);
        table.arrival_ns.push(now_ns);
        table.gpus.push(gang(seed, job).min(cluster.gpus()));
        table
            .duration_ns
            .push(nanoseconds(duration_s(seed, job)).max(1));
    }
    table
}

/// Returns such a workload in which the first `backlog` jobs arrive at time 0.
pub fn with_backlog(backlog: usize, jobs: usize, cluster: Cluster, offered: f64) -> Jobs {
    let mut table = philly_like(backlog + jobs, cluster, offered, 2);
    let shift = backlog
        .checked_sub(1)
        .map_or(0, |last| table.arrival_ns[last]);
    for arrival in &mut table.arrival_ns {
        *arrival = (*arrival - shift).max(0);
    }
    table
}

fn nanoseconds(seconds: f64) -> i64 {
    libm::round(seconds * 1e9) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offered_load_is_what_was_asked_for() {
        for load in Load::ALL {
            let jobs = philly_like(200_000, Cluster::PUBLISHED, load.offered(), 1);
            let work: f64 = jobs
                .gpus
                .iter()
                .zip(&jobs.duration_ns)
                .map(|(&d, &t)| f64::from(d) * t as f64)
                .sum();
            let span = *jobs.arrival_ns.last().expect("not empty") as f64;
            let offered = work / span / f64::from(Cluster::PUBLISHED.gpus());
            assert!((offered / load.offered() - 1.0).abs() < 0.02, "{offered}");
        }
    }

    #[test]
    fn gang_shares_are_those_of_the_table() {
        let jobs = philly_like(100_000, Cluster::PUBLISHED, 1.0, 7);
        for (gpus, share) in GANGS {
            let seen = jobs.gpus.iter().filter(|&&d| d == gpus).count() as f64 / 1_000.0;
            assert!((seen - share as f64).abs() < 0.5, "{gpus} GPUs: {seen} %");
        }
    }

    #[test]
    fn arrivals_are_sorted_and_a_backlog_is_there_at_once() {
        let jobs = with_backlog(50, 100, Cluster::PUBLISHED, 1.0);
        assert!(jobs.arrival_ns.is_sorted());
        assert_eq!(jobs.arrival_ns.iter().filter(|&&t| t == 0).count(), 50);
    }
}
