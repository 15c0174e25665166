//! Placement: a library of the rules that choose the GPUs of a gang, shared by all policies.
//!
//! A rule receives the free GPUs of one type and returns a set of them, or nothing. A rule never reads a clock. It
//! leaves the state unchanged, because it undoes its trial changes to the index. Random numbers come only from a stream
//! keyed by (seed, job, starts), so results do not depend on earlier queries. A placement costs O(servers used x log
//! n), unless it visits racks.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | d | `gpus` | gang size |
//! | G | `server_gpus_max` | size of the largest healthy server of the type |
//! | f(s), F(k) | `free`, `rack_free` | free GPUs of a server, and of a rack |
//! | W(k) | `whole` | idle servers of size G in a rack |

pub(crate) mod consolidate;
mod params;
mod scatter;
mod skew;
mod slots;
mod speeds;
mod yarn;

pub use gangline_model::Tier as Level;
pub use params::{Fit, PlacementParams, RackChoice, Rule, SkewSource, Slots};
pub use speeds::Skew;

use gangline_engine::{ClusterView, FreeIndex, TypePool};
use gangline_model::{GpuSet, GpuTypeId, JobFacts, JobId, ServerId, mask_of_lowest};
use gangline_rng::{Purpose, Stream};
use slots::aligned_mask;
use speeds::{Speeds, Waits};

/// Demand of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The job; its index is part of the key for random draws.
    pub job: JobId,
    /// Gang size, at least 1.
    pub gpus: u32,
    /// Types on which the gang waits for a narrow place; only rule `skew` uses this.
    pub skew: Skew,
    /// Number of times that the job has started; it is part of the key for random draws.
    pub starts: u32,
    /// Widest tier allowed for this call; only rule `consolidate` uses this. The rule's own parameter may limit the
    /// tier further.
    pub max_level: Level,
}

/// A number of GPUs to use on one server; `at` is the server's position in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pick {
    pub(crate) at: usize,
    pub(crate) gpus: u32,
}

/// A placement rule with its parameters.
#[derive(Clone, Debug)]
pub struct Placer {
    params: PlacementParams,
    /// Whether the rule is `consolidate` with best fit, which first tries one server in O(1).
    is_bucket_first: bool,
    draws: Stream,
    high_skew_by_label: Vec<bool>,
    /// Network model, for the rules that use one.
    speeds: Option<Speeds>,
    /// Buffer that all calls reuse.
    picks: Vec<Pick>,
}

/// Returns whether the free GPUs might suffice for a gang that must run on the fewest servers possible. The check costs
/// O(1) and ignores racks, so a positive result does not guarantee a place. `gpus` must exceed the size of the largest
/// server.
fn has_fewest_servers(pool: &TypePool, gpus: u32) -> bool {
    let (servers, least) = fewest_servers(gpus, pool.server_gpus_max());
    // Each server that is not completely free uses at least one of the spare GPUs.
    let spare = pool.server_gpus_max() - least;
    pool.whole_total() + spare >= servers && pool.count_at_least(least) >= servers
}

/// Returns whether a single rack has as many servers with enough free GPUs as `has_fewest_servers` asks for. The result
/// is `true` if the pool does not list its servers rack by rack. In the worst case, the cost is O(servers with enough
/// free GPUs).
fn has_fewest_servers_in_a_rack(pool: &TypePool, gpus: u32) -> bool {
    let (servers, least) = fewest_servers(gpus, pool.server_gpus_max());
    let (mut rack, mut found) = (0, 0);
    pool.all_servers().at_least(least).any(|(at, _)| {
        let next = pool.rack_of(at);
        let is_known = next >= rack;
        found = if next == rack { found + 1 } else { 1 };
        rack = next;
        found >= servers || !is_known
    })
}

/// Returns the minimum number of servers of size `size` that a gang needs, and the minimum number of free GPUs that it
/// needs on each of them.
fn fewest_servers(gpus: u32, size: u32) -> (u32, u32) {
    let servers = gpus.div_ceil(size);
    (servers, size - (servers * size - gpus))
}

impl Placer {
    /// Creates a rule for the run to which the view belongs.
    pub fn new(params: PlacementParams, view: &ClusterView<'_>) -> Self {
        let labels = &view.jobs().columns().model_labels;
        let mut placer = Self::with_seed(params, view.seed(), labels);
        placer.speeds = Speeds::of(view);
        if placer.params.skew == SkewSource::Sizes {
            for (label, is_high) in placer.high_skew_by_label.iter_mut().enumerate() {
                let network = view.network();
                if let Some(skew) = network.and_then(|network| network.skew(Some(label as u32))) {
                    *is_high = skew >= placer.params.skew_threshold;
                }
            }
        }
        placer
    }

    /// Creates a rule for use outside a run, from a seed for its random draws and the model labels of the jobs.
    pub fn with_seed(params: PlacementParams, seed: u64, model_labels: &[String]) -> Self {
        let is_bucket_first = params.rule == Rule::Consolidate && params.fit == Fit::Best;
        Self {
            is_bucket_first,
            draws: Stream::new(seed, Purpose::Placement),
            high_skew_by_label: model_labels
                .iter()
                .map(|name| skew::is_high(name))
                .collect(),
            speeds: None,
            picks: Vec::new(),
            params,
        }
    }

    /// Returns the parameters.
    pub fn params(&self) -> &PlacementParams {
        &self.params
    }

    /// Returns the demand of a job, with the widest tier that the parameters allow.
    #[inline]
    pub fn demand(&self, jobs: &JobFacts, job: JobId, starts: u32) -> Demand {
        Demand {
            job,
            gpus: jobs.gpus(job),
            skew: self.skew(jobs, job),
            starts,
            max_level: self.params.max_level,
        }
    }

    #[inline]
    fn skew(&self, jobs: &JobFacts, job: JobId) -> Skew {
        if self.params.rule != Rule::Skew {
            return Skew::LOW;
        }
        if self.params.skew == SkewSource::Oracle {
            let accepts = 1.0 - self.params.skew_eps;
            return self
                .speeds
                .as_ref()
                .map_or(Skew::LOW, |speeds| speeds.skew(job, accepts));
        }
        if self.high_skew(jobs, job) {
            Skew::HIGH
        } else {
            Skew::LOW
        }
    }

    /// Returns whether the job's model counts as highly skewed, by its name or, with `skew = "sizes"`, by the relative
    /// size of its largest tensor. A job without a model name counts as highly skewed.
    #[inline]
    pub fn high_skew(&self, jobs: &JobFacts, job: JobId) -> bool {
        let label = jobs
            .model(job)
            .and_then(|label| self.high_skew_by_label.get(label as usize));
        label.copied().unwrap_or(true)
    }

    /// Returns whether the rule may refuse a gang although enough GPUs of the type are free.
    pub fn may_refuse(&self) -> bool {
        match self.params.rule {
            Rule::Consolidate => self.params.max_level < Level::Network,
            Rule::Yarn | Rule::WholeServers | Rule::Skew => true,
            Rule::Spread | Rule::Random | Rule::RandomServer | Rule::Count | Rule::BestSpeed => {
                false
            }
        }
    }

    /// Returns whether the rule takes the first server with room.
    pub fn is_first_fit(&self) -> bool {
        self.params.fit == Fit::First
    }

    /// Returns whether the rule prefers the narrowest place, and a single server to every other place.
    pub fn is_narrow(&self) -> bool {
        matches!(
            self.params.rule,
            Rule::Consolidate | Rule::Yarn | Rule::WholeServers | Rule::Skew
        )
    }

    /// Returns whether the gang gets either a single server or no place. The answer holds as long as the size of the
    /// largest healthy server does not change.
    pub fn is_on_one_server(&self, free: &FreeIndex, gpu_type: GpuTypeId, demand: &Demand) -> bool {
        let is_narrow = demand.gpus <= free.pool(gpu_type).server_gpus_max();
        match self.params.rule {
            Rule::Consolidate => self.level(demand) == Level::Server,
            Rule::Yarn | Rule::WholeServers => is_narrow,
            Rule::Skew => is_narrow && demand.skew.on(gpu_type) == Waits::Server,
            Rule::Spread | Rule::Random | Rule::RandomServer | Rule::Count | Rule::BestSpeed => {
                false
            }
        }
    }

    /// Returns `(servers, gpus)`: the gang has no place unless at least `servers` servers have at least `gpus` free
    /// GPUs each. The answer holds as long as the size of the largest healthy server does not change. This condition is
    /// necessary but not sufficient. `None` means that no such condition is known.
    pub fn needs(
        &self,
        free: &FreeIndex,
        gpu_type: GpuTypeId,
        demand: &Demand,
    ) -> Option<(u32, u32)> {
        let pool = free.pool(gpu_type);
        let (gpus, size) = (demand.gpus, pool.server_gpus_max());
        if self.is_on_one_server(free, gpu_type, demand) {
            return Some((1, gpus));
        }
        match self.params.rule {
            _ if gpus <= size || size == 0 => None,
            Rule::Yarn => Some((gpus / size, size)),
            Rule::WholeServers => Some((gpus.div_ceil(size), size)),
            Rule::Skew => {
                let is_gathered = demand.skew.on(gpu_type) == Waits::Server;
                (is_gathered && gpus <= pool.rack_up_max()).then(|| fewest_servers(gpus, size))
            }
            _ => None,
        }
    }

    /// Returns GPUs on a server, chosen from the free slots in `mask`; there must be enough of them. This ignores the
    /// placement rule.
    pub fn place_in_mask(&self, server: ServerId, mask: u64, gpus: u32) -> GpuSet {
        GpuSet::single(server, self.slots_in(mask, gpus))
    }

    /// Returns GPUs on the server at the given position, which must have enough free GPUs. This ignores the placement
    /// rule.
    pub fn place_at(&self, pool: &TypePool, at: usize, gpus: u32) -> GpuSet {
        GpuSet::single(pool.server(at), self.slots(pool, at, gpus))
    }

    /// Returns whether the gang might find no place although it would find one if fewer GPUs were free. Under `skew`, a
    /// gang wider than every rack first takes completely free racks, the largest ones first, and may then find no place
    /// for its remaining GPUs.
    pub fn is_non_monotone(&self, free: &FreeIndex, gpu_type: GpuTypeId, demand: &Demand) -> bool {
        self.params.rule == Rule::Skew
            && demand.skew.on(gpu_type) != Waits::Nowhere
            && demand.gpus > free.pool(gpu_type).rack_up_max()
    }

    /// Makes a quick check: if the result is `false`, [`Self::place`] would find nothing. The cost is usually O(1). It
    /// is O(log racks) if the widest tier is a rack, and O(servers with enough free GPUs) if the gang must use the
    /// fewest servers in one rack.
    #[inline]
    pub fn can(&self, free: &mut FreeIndex, gpu_type: GpuTypeId, demand: &Demand) -> bool {
        let pool = free.pool_mut(gpu_type);
        let gpus = demand.gpus;
        if pool.free_total() < gpus {
            return false;
        }
        match self.params.rule {
            Rule::Consolidate => match self.level(demand) {
                Level::Network => true,
                Level::Rack => most_free_of_a_rack(pool) >= gpus,
                Level::Server => pool.server_free_max() >= gpus,
            },
            Rule::Yarn | Rule::WholeServers => {
                let size = pool.server_gpus_max();
                if gpus <= size {
                    return pool.server_free_max() >= gpus;
                }
                let is_whole = self.params.rule == Rule::WholeServers;
                let whole = if is_whole {
                    gpus.div_ceil(size)
                } else {
                    gpus / size
                };
                pool.whole_total() >= whole
            }
            Rule::Skew => match demand.skew.on(gpu_type) {
                Waits::Server if gpus <= pool.server_gpus_max() => pool.server_free_max() >= gpus,
                Waits::Server => {
                    gpus > pool.rack_up_max()
                        || (has_fewest_servers(pool, gpus)
                            && most_free_of_a_rack(pool) >= gpus
                            && has_fewest_servers_in_a_rack(pool, gpus))
                }
                Waits::Rack => gpus > pool.rack_up_max() || most_free_of_a_rack(pool) >= gpus,
                Waits::Nowhere => true,
            },
            Rule::Spread | Rule::Random | Rule::RandomServer | Rule::Count | Rule::BestSpeed => {
                true
            }
        }
    }

    /// Returns the gang's GPUs on one type under the rule, or `None` if it has no place now. The index is restored
    /// afterwards.
    #[inline]
    pub fn place(
        &mut self,
        free: &mut FreeIndex,
        gpu_type: GpuTypeId,
        demand: &Demand,
    ) -> Option<GpuSet> {
        debug_assert!(demand.gpus >= 1, "a gang has at least one GPU");
        let found = self.place_in_bucket(free.pool(gpu_type), demand.gpus);
        if found.is_some() || (self.is_bucket_first && self.level(demand) == Level::Server) {
            return found;
        }
        self.place_by_rule(free, gpu_type, demand)
    }

    /// Performs the first step of [`Self::place`] in O(1). For `consolidate` with best fit, this step tries a single
    /// server. `None` means that this step finds nothing or does not apply.
    #[inline]
    pub fn place_in_bucket(&self, pool: &TypePool, gpus: u32) -> Option<GpuSet> {
        if !self.is_bucket_first {
            return None;
        }
        let at = pool.best_fit(gpus)?;
        Some(GpuSet::single(pool.server(at), self.slots(pool, at, gpus)))
    }

    fn place_by_rule(
        &mut self,
        free: &mut FreeIndex,
        gpu_type: GpuTypeId,
        demand: &Demand,
    ) -> Option<GpuSet> {
        if free.pool(gpu_type).free_total() < demand.gpus {
            return None;
        }
        let mut picks = std::mem::take(&mut self.picks);
        picks.clear();
        let gpus = self.dispatch(free, gpu_type, demand, &mut picks);
        self.picks = picks;
        gpus
    }

    fn dispatch(
        &self,
        free: &mut FreeIndex,
        gpu_type: GpuTypeId,
        demand: &Demand,
        picks: &mut Vec<Pick>,
    ) -> Option<GpuSet> {
        let gpus = demand.gpus;
        let key = scatter::Key {
            draws: self.draws,
            demand,
        };
        let found = match self.params.rule {
            Rule::Consolidate => {
                let level = self.level(demand);
                consolidate::place(&self.params, free, gpu_type, (gpus, level), picks)
            }
            Rule::Yarn | Rule::WholeServers => {
                yarn::place(&self.params, free.pool_mut(gpu_type), gpus, picks)
            }
            Rule::Skew => match demand.skew.on(gpu_type) {
                Waits::Rack if gpus <= free.pool(gpu_type).rack_up_max() => {
                    consolidate::place(&self.params, free, gpu_type, (gpus, Level::Rack), picks)
                }
                Waits::Server | Waits::Rack => {
                    skew::place_high(self.params.fit, free, gpu_type, gpus, picks)
                }
                Waits::Nowhere => {
                    consolidate::place(&self.params, free, gpu_type, (gpus, Level::Network), picks)
                }
            },
            Rule::BestSpeed => return self.best_speed(free, gpu_type, demand, picks),
            Rule::Spread => scatter::spread(free.pool(gpu_type), gpus, picks),
            Rule::RandomServer => {
                match scatter::random_server(free.pool_mut(gpu_type), &key) {
                    Some(at) => picks.push(Pick { at, gpus }),
                    None => return Some(scatter::random(free, gpu_type, &key)),
                }
                true
            }
            Rule::Random => return Some(scatter::random(free, gpu_type, &key)),
            Rule::Count => return Some(scatter::count(free.pool_mut(gpu_type), gpus)),
        };
        found.then(|| self.gpu_set(free.pool(gpu_type), picks))
    }

    /// Compares the places that `consolidate` would take at each level, and returns the fastest one; ties go to the
    /// narrowest.
    fn best_speed(
        &self,
        free: &mut FreeIndex,
        gpu_type: GpuTypeId,
        demand: &Demand,
        picks: &mut Vec<Pick>,
    ) -> Option<GpuSet> {
        let mut best: Option<(f64, GpuSet)> = None;
        for level in [Level::Server, Level::Rack, Level::Network] {
            picks.clear();
            if !consolidate::at_level(&self.params, free, gpu_type, (demand.gpus, level), picks) {
                continue;
            }
            let found = self.gpu_set(free.pool(gpu_type), picks);
            let speeds = self.speeds.as_ref();
            let speed = speeds.map_or(1.0, |speeds| speeds.locality(demand.job, &found));
            if best.as_ref().is_none_or(|(fastest, _)| speed > *fastest) {
                best = Some((speed, found));
            }
        }
        best.map(|(_, found)| found)
    }

    fn gpu_set(&self, pool: &TypePool, picks: &mut [Pick]) -> GpuSet {
        picks.sort_unstable();
        let slots = |pick: &Pick| (pool.server(pick.at), self.slots(pool, pick.at, pick.gpus));
        picks.iter().map(slots).collect()
    }

    #[inline]
    fn slots(&self, pool: &TypePool, at: usize, gpus: u32) -> u64 {
        self.slots_in(pool.mask(at), gpus)
    }

    #[inline]
    fn slots_in(&self, mask: u64, gpus: u32) -> u64 {
        match self.params.slots {
            Slots::Lowest => mask_of_lowest(mask, gpus),
            Slots::Aligned => aligned_mask(mask, gpus),
        }
    }

    #[inline]
    fn level(&self, demand: &Demand) -> Level {
        demand.max_level.min(self.params.max_level)
    }
}

fn most_free_of_a_rack(pool: &mut TypePool) -> u32 {
    pool.rack_most_free().map_or(0, |(_, free)| free)
}
