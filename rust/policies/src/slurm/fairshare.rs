//! Fair share: jobs of users who have used less of the cluster than their share get a higher priority.
//!
//! An association is a user in an account. The associations are the leaves of a tree of accounts. Usage, in
//! GPU-seconds, is charged at the end of each period and then decays, so the factors are constant within a period. All
//! sums run over the children of a node in a fixed order: accounts before users, then by name.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | S, U | `ratio` | shares and usage of a node, each relative to the total over the node and its siblings |
//! | LF | `levels` | S / U |
//! | D | `decay` | factor by which usage shrinks in each period |

use super::params::{FairParams, ShareRule};
use gangline_model::SimTime;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An account, or a user in an account. The root is the account without a name.
#[derive(Clone, Debug)]
struct Node {
    is_user: bool,
    shares: f64,
    usage: f64,
    children: Vec<usize>,
}

/// The GPU time that one association uses in one QOS.
#[derive(Clone, Debug)]
struct Meter {
    association: usize,
    /// Usage factor of the QOS.
    factor: f64,
    gpus: u32,
    /// Instant up to which `gpu_ns` is complete.
    counted_to: SimTime,
    /// Usage in the current period.
    gpu_ns: i128,
}

impl Meter {
    fn count(&mut self, now: SimTime) {
        self.gpu_ns += i128::from(self.gpus) * i128::from((now - self.counted_to).0);
        self.counted_to = now;
    }
}

/// Shares and usage of all associations.
#[derive(Clone, Debug)]
pub(super) struct FairShare {
    params: FairParams,
    decay: f64,
    nodes: Vec<Node>,
    root: usize,
    /// Account and user of each association, ascending.
    names: Vec<(String, String)>,
    /// The node of each association.
    users: Vec<usize>,
    /// Meters, ordered by association, then by name of the QOS.
    meters: Vec<Meter>,
    factors: Arc<[f64]>,
    /// Number of periods that have ended.
    ticks: i64,
    /// Whether no job has started yet.
    is_untouched: bool,
    is_stale: bool,
}

impl FairShare {
    /// Builds the tree from the associations in a trace and the associations that the parameters name.
    pub(super) fn new(params: FairParams, of_trace: &BTreeSet<(&str, &str)>) -> Self {
        let user_shares: BTreeMap<(&str, &str), f64> = params.user_shares().collect();
        let mut pairs = of_trace.clone();
        pairs.extend(user_shares.keys());
        let mut accounts: BTreeSet<&str> = pairs.iter().map(|pair| pair.0).collect();
        accounts.extend(params.account_shares.keys().map(String::as_str));
        for (account, parent) in &params.account_parents {
            accounts.extend([account.as_str(), parent]);
        }
        accounts.insert("");
        let accounts: Vec<&str> = accounts.into_iter().collect();
        let place = |name: &str| accounts.binary_search(&name).expect("one of all");
        let node = |is_user, shares: Option<&f64>| Node {
            is_user,
            shares: shares.copied().unwrap_or(1.0),
            usage: 0.0,
            children: Vec::new(),
        };
        let shares = accounts.iter().map(|&name| params.account_shares.get(name));
        let mut nodes: Vec<Node> = shares.map(|shares| node(false, shares)).collect();
        for &name in accounts.iter().filter(|name| !name.is_empty()) {
            nodes[place(params.parent(name))].children.push(place(name));
        }
        let users: Vec<usize> = (nodes.len()..nodes.len() + pairs.len()).collect();
        for (pair, &user) in pairs.iter().zip(&users) {
            nodes[place(pair.0)].children.push(user);
            nodes.push(node(true, user_shares.get(pair)));
        }
        let root = place("");
        let names = pairs
            .iter()
            .map(|(account, user)| ((*account).to_owned(), (*user).to_owned()));
        let decay = if params.half_life_s > 0.0 {
            libm::pow(0.5, params.calc_period_s / params.half_life_s)
        } else {
            1.0
        };
        Self {
            decay,
            nodes,
            root,
            names: names.collect(),
            factors: vec![0.0; users.len()].into(),
            users,
            meters: Vec::new(),
            ticks: 0,
            is_untouched: true,
            is_stale: true,
            params,
        }
    }

    /// Returns the index of an association.
    pub(super) fn association(&self, account: &str, user: &str) -> usize {
        let of =
            |(own, name): &(String, String)| (own.as_str(), name.as_str()).cmp(&(account, user));
        self.names
            .binary_search_by(of)
            .expect("the association is in the tree")
    }

    /// Creates, in order, a meter for each combination of association and QOS; `wanted` contains the usage factor of
    /// the QOS.
    pub(super) fn add_meters(&mut self, wanted: &BTreeMap<(usize, &str), f64>) {
        self.meters = wanted
            .iter()
            .map(|(&(association, _), &factor)| Meter {
                association,
                factor,
                gpus: 0,
                counted_to: SimTime::ZERO,
                gpu_ns: 0,
            })
            .collect();
    }

    /// Records that a job starts on this many GPUs.
    pub(super) fn start(&mut self, meter: usize, gpus: u32, now: SimTime) {
        let meter = &mut self.meters[meter];
        meter.count(now);
        meter.gpus += gpus;
        self.is_untouched = false;
    }

    /// Records that a job stops.
    pub(super) fn stop(&mut self, meter: usize, gpus: u32, now: SimTime) {
        let meter = &mut self.meters[meter];
        meter.count(now);
        meter.gpus -= gpus;
    }

    /// Performs the usage calculations that are due. The policy must call this method before it records the starts and
    /// stops at an instant.
    pub(super) fn bring_up(&mut self, now: SimTime) {
        let period = self.params.calc_period.0;
        if self.is_untouched {
            self.ticks = now.0 / period;
        }
        while (self.ticks + 1) * period <= now.0 {
            self.ticks += 1;
            self.tick(SimTime(self.ticks * period));
        }
    }

    fn tick(&mut self, end: SimTime) {
        self.is_stale = true;
        let mut meters = self.meters.iter_mut().peekable();
        for (association, &user) in self.users.iter().enumerate() {
            let mut charged = 0.0;
            while let Some(meter) = meters.next_if(|meter| meter.association == association) {
                meter.count(end);
                charged += meter.factor * (std::mem::take(&mut meter.gpu_ns) as f64 / 1e9);
            }
            let usage = &mut self.nodes[user].usage;
            *usage = *usage * self.decay + charged;
        }
    }

    /// Returns the number of usage calculations so far; factors do not change between calculations.
    pub(super) fn ticks(&self) -> i64 {
        self.ticks
    }

    /// Returns the fair-share factor of each association.
    pub(super) fn factors(&mut self) -> Arc<[f64]> {
        if std::mem::take(&mut self.is_stale) {
            self.add_up(self.root);
            self.factors = match self.params.rule {
                ShareRule::Tree => self.ranks(),
                ShareRule::Classic => self.classic(),
            };
        }
        Arc::clone(&self.factors)
    }

    fn total(&self, of: &[usize], value: impl Fn(&Node) -> f64) -> f64 {
        of.iter()
            .fold(0.0, |sum, &node| sum + value(&self.nodes[node]))
    }

    /// Computes the usage of every account at or below a node as the sum over its children.
    fn add_up(&mut self, node: usize) {
        if self.nodes[node].is_user {
            return;
        }
        let children = std::mem::take(&mut self.nodes[node].children);
        for &child in &children {
            self.add_up(child);
        }
        self.nodes[node].usage = self.total(&children, |child| child.usage);
        self.nodes[node].children = children;
    }

    /// Returns the factors of the fair-tree algorithm: each user's rank divided by the number of users. The best-ranked
    /// user has factor 1.
    fn ranks(&self) -> Arc<[f64]> {
        let mut ranks = Ranks {
            of: vec![0; self.nodes.len()],
            left: self.users.len(),
        };
        self.visit(&[self.root], ranks.left, &mut ranks);
        let count = self.users.len() as f64;
        self.users
            .iter()
            .map(|&user| ranks.of[user] as f64 / count)
            .collect()
    }

    /// Ranks the children of tied accounts together. The best child gets the rank of these accounts.
    fn visit(&self, accounts: &[usize], first: usize, ranks: &mut Ranks) {
        let mut levels: Vec<(f64, usize)> = Vec::new();
        for &account in accounts {
            let children = &self.nodes[account].children;
            let shares = self.total(children, |child| child.shares);
            let usage = self.total(children, |child| child.usage);
            for &child in children {
                let node = &self.nodes[child];
                let used = ratio(node.usage, usage);
                let level = if used > 0.0 {
                    ratio(node.shares, shares) / used
                } else {
                    f64::INFINITY
                };
                levels.push((level, child));
            }
        }
        levels.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut rank = first;
        for group in levels.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
            let of_kind = |is_user| {
                let nodes = group.iter().map(|&(_, node)| node);
                nodes.filter(move |&node| self.nodes[node].is_user == is_user)
            };
            for user in of_kind(true) {
                ranks.of[user] = rank;
                ranks.left -= 1;
            }
            let accounts: Vec<usize> = of_kind(false).collect();
            if !accounts.is_empty() {
                self.visit(&accounts, rank, ranks);
            }
            rank = ranks.left;
        }
    }

    /// Returns the classic factors. The factor is 0.5 for a user whose usage equals its share, and higher for a user
    /// with less usage.
    fn classic(&self) -> Arc<[f64]> {
        let mut factors = vec![0.0; self.nodes.len()];
        self.descend(self.root, 1.0, None, &mut factors);
        self.users.iter().map(|&user| factors[user]).collect()
    }

    fn descend(&self, parent: usize, shares: f64, effective: Option<f64>, factors: &mut [f64]) {
        let children = &self.nodes[parent].children;
        let among = self.total(children, |child| child.shares);
        for &child in children {
            let node = &self.nodes[child];
            let own = ratio(node.shares, among);
            let mut used = ratio(node.usage, self.nodes[self.root].usage);
            if let Some(effective) = effective {
                used += (effective - used) * own;
            }
            let part = shares * own;
            if !node.is_user {
                self.descend(child, part, Some(used), factors);
            } else if part > 0.0 {
                factors[child] = libm::pow(2.0, -used / part / self.params.dampening);
            }
        }
    }
}

/// Intermediate state while ranks are assigned.
struct Ranks {
    of: Vec<usize>,
    /// Users without a rank.
    left: usize,
}

/// Returns `part` as a fraction of `whole`; 0 if `whole` is 0.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
