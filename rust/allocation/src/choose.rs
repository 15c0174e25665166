//! Finds the exact optimal plan in which each class reaches a given minimum rate (its floor). The simplex method
//! exploits the structure of these programs.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `x[c,k]` | shares | time that one job of class c spends on type k |
//! | `n_c`, `s_c` | `members`, `gangs` | number of jobs in the class, GPUs of a job |
//! | `W_k` | `capacity` | GPUs of a type |
//! | `f_c` | `floors` | lower bound of `rates . x` for a job |
//! | `y[a,b,k]` | pair | time that jobs of classes a and b spend together on type k |
//! | `t` | level | the level: all floors rise to `f (1 + t)` |
//! | `q` | `prices` | multipliers of the linking rows |
//!
//! The method maximises `sum n gains . x` subject to `sum_k x <= 1`, `rates . x >= f` for each class, and `sum n s x <=
//! W` for each type. Each class has two rows of its own, so two of its columns are always basic (its keys). The number
//! of other basic columns equals the number of linking rows; there is one linking row per type. Prices therefore come
//! from a system with one row per type, and the cost of a step does not grow with the number of classes.
//!
//! A scan over all columns costs O(classes x types) and finds the columns with a gain. The method prices each of these
//! columns again before it enters the basis, so that one scan is enough for many steps. The method never starts from
//! earlier results, so equal programs give bit-identical plans.
//!
//! A pair has entries in the rows of two classes, and the level has entries in the rows of all classes, so neither can
//! be a key. If a key leaves the basis and no other column of its class can replace it, the key stays and is pinned to
//! 0 by an additional linking row. The number of pins never exceeds the number of pairs and levels in the basis.

use super::model::SolverError;
use super::square::{Links, Square};
use smallvec::{SmallVec, smallvec};

/// A reduced cost up to this limit counts as 0. The gains are scaled so that the largest is 1.
const OPTIMAL: f64 = 1e-11;
/// In water filling, a reduced cost of up to this fraction of the largest price also counts as 0.
const ROUNDING: f64 = 1e-14;
/// A pivot up to this limit is treated as 0.
const PIVOT: f64 = 1e-9;
/// Largest shortage of a type that is allowed after the first phase, as a fraction of the GPUs of the type.
const LACKING: f64 = 1e-11;
/// After more than this number of steps without progress, only the first column with a gain enters the basis after each
/// scan. If the method still cycles, it ends at the step limit.
const STALLED: u32 = 40;
/// A floor limits the level if its multiplier is above this fraction of the largest multiplier. Any other floor is
/// tested again in the next rise.
const LIMITS: f64 = 1e-3;
/// Fraction of the first objective that a second objective may give up. The value is too small to change any comparison
/// of plans, but larger than rounding noise.
const SLACK: f64 = 1e-9;

/// A column for the time that jobs of two classes, or two jobs of one class, spend on the same GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The two classes.
    pub classes: [usize; 2],
    /// GPU type on which the two classes share GPUs.
    pub gpu_type: usize,
    /// Rate of a job of each class while it shares GPUs with a job of the other class.
    pub rates: [f64; 2],
    /// Gain per unit of time during which the two jobs run together.
    pub gain: f64,
    /// Gain per unit of this time under the objective `then`.
    pub then: f64,
}

/// A program. Tables are row-major, `classes x types`.
#[derive(Clone, Copy, Debug)]
pub struct Choose<'a> {
    /// Rates to which the floors refer; 0 where a class cannot run.
    pub rates: &'a [f64],
    /// For each class and type, the gain per unit of a job's share.
    pub gains: &'a [f64],
    /// Gains of a second objective, which chooses among several optima; `None` if there is no second objective.
    pub then: Option<&'a [f64]>,
    /// Gang size of the jobs in each class.
    pub gangs: &'a [f64],
    /// Number of jobs in each class.
    pub members: &'a [f64],
    /// Number of GPUs of each type.
    pub capacity: &'a [f64],
    /// Minimum rate per job, for each class.
    pub floors: &'a [f64],
    /// Prices from which the first plan is computed: for each type, one price for all its GPUs together. An empty list
    /// means that all prices are 0.
    pub prices: &'a [f64],
    /// Pairs of classes that may share GPUs.
    pub pairs: &'a [Pair],
    /// Whether all floors rise together as far as possible. If so, the level is the first objective, and `gains` is the
    /// next.
    pub rises: bool,
}

/// A plan, and the number of simplex steps.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// Time that each pair spends together, in job-seconds per second.
    pub together: Vec<f64>,
    /// Value of the first objective: the sum of the gains, or the level `t` if floors rise.
    pub value: f64,
    /// Weight of each class's floor in the bound on the level; empty unless floors rise. In every plan, the sum of
    /// weight x rate / floor over all classes is at most 1 plus the level.
    pub weights: Vec<f64>,
    /// Number of simplex steps.
    pub steps: u32,
}

/// A basic column that is not a key of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extra {
    Own(usize, usize),
    /// The column of a pair.
    Pair(usize),
    /// The common level of all floors.
    Level,
    /// The slack of a linking row.
    Left(usize),
    /// The shortage in a linking row, in the first phase only.
    Lacks(usize),
}

impl Extra {
    /// Returns the position of the column in a total order of all columns.
    fn place(self) -> (usize, usize) {
        match self {
            Self::Left(link) | Self::Lacks(link) => (0, link),
            Self::Own(class, column) => (1 + class, column),
            Self::Pair(pair) => (usize::MAX - 1, pair),
            Self::Level => (usize::MAX, 0),
        }
    }
}

type Rows = [f64; 2];

struct Simplex<'a> {
    problem: &'a Choose<'a>,
    types: usize,
    /// Number of linking rows, not counting those for pins.
    links: usize,
    /// For each pair, its two classes; for each of them, the entries of the pair's column in the rows of this class.
    sides: Vec<[(usize, Rows); 2]>,
    /// Number of pairs of jobs in one unit of each pair's column; this equals the number of jobs in the smaller class.
    units: Vec<f64>,
    /// Rates divided by floors.
    scaled: Vec<f64>,
    /// Objective coefficients: first those of the shares (for all members of a class), then those of the pairs, then
    /// that of the level. All of them are 0 in the first phase.
    cost: Vec<f64>,
    /// For each class and type, the GPUs of all members of the class as a fraction of the GPUs of the type; 0 for a
    /// type without GPUs. The same values for the pairs and the level follow.
    held: Vec<f64>,
    /// Coefficients of the objective whose value must be preserved; empty if no objective will be preserved.
    kept: Vec<f64>,
    right: Links,
    keys: Vec<[usize; 2]>,
    /// For each class, the inverse of the matrix of its two key columns, in row-major order.
    inverse: Vec<[Rows; 2]>,
    /// Rate at which the level raises the floor of each class; 0 for a floor that does not rise.
    rises: Vec<f64>,
    /// Whether each class has a floor.
    has_floor: Vec<bool>,
    /// For each class, the original rate that corresponds to a scaled rate of 1.
    units_of_rates: Vec<f64>,
    /// Keys that are fixed at 0: the class, and the position of the key in `keys`.
    pins: SmallVec<[(usize, usize); 8]>,
    extras: SmallVec<[Extra; 6]>,
    /// Inverse of the working basis; it determines `prices`, the multipliers of the linking rows.
    working: Square,
    prices: Links,
    /// A reduced cost up to this limit counts as 0.
    noise: f64,
    /// A reduced cost up to this fraction of the largest price also counts as 0; [`ROUNDING`] in water filling,
    /// otherwise 0.
    rounding: f64,
    /// Right-hand sides of the linking rows, minus the amounts that the keys use.
    residual: Links,
    is_first_phase: bool,
    steps: u32,
}

impl Choose<'_> {
    /// Solves the program; the solution is a vertex.
    ///
    /// # Errors
    /// Returns [`SolverError`] if no plan reaches the floors, or if rounding errors prevent a solution.
    pub fn solve(&self) -> Result<Chosen, SolverError> {
        let mut simplex = Simplex::new(self, self.then.is_some() || self.rises)?;
        simplex.reach_floors()?;
        let first = if self.rises {
            Objective::Level
        } else {
            Objective::Gains
        };
        simplex.cost = simplex.objective(first);
        simplex.run()?;
        let mut plan = simplex.plan()?;
        if self.rises {
            let classes = 0..self.gangs.len();
            plan.weights = classes.map(|class| -simplex.duals(class)[1]).collect();
        }
        let next = if self.rises {
            Some(Objective::Gains)
        } else {
            self.then.map(|_| Objective::Then)
        };
        if let Some(next) = next {
            simplex.keep(first)?;
            simplex.cost = simplex.objective(next);
            simplex.run()?;
            plan = Chosen {
                value: plan.value,
                weights: plan.weights,
                ..simplex.plan()?
            };
        }
        Ok(plan)
    }
}

/// Function that returns the speed at which the level of each class rises. Its argument says, for each class, whether
/// the level can rise no further.
pub(crate) type Speeds<'a> = &'a dyn Fn(&[bool]) -> Vec<f64>;

/// Result of raising the floors as far as possible.
pub(crate) struct Filled {
    /// Level of each class.
    pub levels: Vec<f64>,
    /// Number of rises.
    pub rises: u32,
    /// The plan with the largest gain among those that reach the levels; without shares if it was not requested. The
    /// number of simplex steps is always set.
    pub plan: Chosen,
}

impl Choose<'_> {
    /// Raises all floors together, then those floors that can rise further, until no floor can rise. If `speeds` is
    /// given, floors rise at the rates that it returns. If `chooses` is set, the last step finds the plan with the
    /// largest gain among those that reach the levels.
    ///
    /// # Errors
    /// Returns [`SolverError`] if no plan reaches the floors, or if rounding errors prevent a solution.
    pub(crate) fn fill(
        &self,
        speeds: Option<Speeds<'_>>,
        chooses: bool,
    ) -> Result<Filled, SolverError> {
        let mut simplex = Simplex::new(self, false)?;
        simplex.rounding = ROUNDING;
        let mut water = Water {
            reached: vec![1.0; self.gangs.len()],
            done: vec![false; self.gangs.len()],
        };
        simplex.set_speeds(&water, speeds);
        simplex.reach_floors()?;
        simplex.cost = simplex.objective(Objective::Level);
        let mut rises = 0;
        while simplex.rises.iter().any(|speed| *speed > 0.0) {
            simplex.step(Extra::Level)?;
            simplex.run()?;
            simplex.lift(&mut water)?;
            simplex.set_speeds(&water, speeds);
            rises += 1;
        }
        let units = simplex.units_of_rates.iter().zip(&water.reached);
        let has_floor = simplex.has_floor.iter();
        let levels = units.zip(has_floor);
        let levels = levels
            .map(|((unit, times), has)| if *has { unit * times } else { 0.0 })
            .collect();
        let mut plan = Chosen::default();
        if chooses {
            simplex.cost = simplex.objective(Objective::Gains);
            simplex.run()?;
            plan = simplex.plan()?;
        }
        plan.steps = simplex.steps + rises;
        Ok(Filled {
            levels,
            rises,
            plan,
        })
    }
}

/// Current state of the levels of all classes.
struct Water {
    /// Level of each class, in units of its first floor, or in units of its largest rate if it had no floor.
    reached: Vec<f64>,
    /// Whether the level of each class can rise no further.
    done: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
enum Objective {
    Level,
    Gains,
    Then,
}

impl Choose<'_> {
    /// Returns the sum of the gains of a plan.
    fn total(&self, plan: &Chosen) -> f64 {
        let types = self.capacity.len();
        let alone = plan.shares.iter().zip(self.gains).enumerate();
        let alone = alone.map(|(at, (x, gain))| self.members[at / types] * gain * x);
        let together = self.pairs.iter().zip(&plan.together);
        alone.sum::<f64>() + together.map(|(pair, time)| pair.gain * time).sum::<f64>()
    }
}

impl<'a> Simplex<'a> {
    fn new(problem: &'a Choose<'a>, is_kept: bool) -> Result<Self, SolverError> {
        let (classes, types) = (problem.gangs.len(), problem.capacity.len());
        let sizes = [problem.rates.len(), problem.gains.len()];
        let columns = [problem.members.len(), problem.floors.len()];
        if sizes != [classes * types; 2] || columns != [classes; 2] {
            return Err(SolverError::Input {
                what: "tables",
                expected: "classes x types entries in rates and gains, and one number per class in members and floors",
            });
        }
        let links = types + usize::from(is_kept);
        let mut simplex = Self {
            types,
            links,
            sides: Vec::new(),
            units: Vec::new(),
            scaled: Vec::with_capacity(classes * types),
            cost: Vec::new(),
            held: Vec::with_capacity(classes * types),
            kept: Vec::new(),
            right: smallvec![1.0; types],
            keys: Vec::with_capacity(classes),
            inverse: vec![[[0.0; 2]; 2]; classes],
            rises: vec![0.0; classes],
            has_floor: problem.floors.iter().map(|floor| *floor > 0.0).collect(),
            units_of_rates: Vec::with_capacity(classes),
            pins: SmallVec::new(),
            extras: SmallVec::new(),
            working: Square::default(),
            prices: Links::new(),
            noise: OPTIMAL,
            rounding: 0.0,
            residual: Links::new(),
            is_first_phase: false,
            steps: 0,
            problem,
        };
        simplex.right.resize(links, 0.0);
        for (speed, has_floor) in simplex.rises.iter_mut().zip(&simplex.has_floor) {
            *speed = f64::from(u8::from(*has_floor));
        }
        let columns = classes * types + problem.pairs.len() + 1;
        if is_kept {
            simplex.kept = vec![0.0; columns];
        }
        simplex.add_rates();
        for pair in problem.pairs {
            simplex.add_pair(pair);
        }
        simplex.held.push(0.0);
        let wanted = simplex.objective(Objective::Gains);
        for class in 0..classes {
            let keys = simplex.first_keys(class, &wanted)?;
            simplex.keys.push(keys);
            simplex.invert_keys(class)?;
        }
        simplex.cost = vec![0.0; columns];
        simplex.set_residual();
        for link in 0..links {
            let lacks = simplex.residual[link] < 0.0;
            simplex.is_first_phase |= lacks;
            let extra = if lacks {
                Extra::Lacks(link)
            } else {
                Extra::Left(link)
            };
            simplex.extras.push(extra);
        }
        simplex.invert_working()?;
        Ok(simplex)
    }

    fn is_usable(&self, class: usize, kind: usize) -> bool {
        self.scaled[class * self.types + kind] > 0.0
    }

    fn add_rates(&mut self) {
        for (class, row) in self.problem.rates.chunks_exact(self.types).enumerate() {
            let (floor, gpus) = (
                self.problem.floors[class],
                self.problem.members[class] * self.problem.gangs[class],
            );
            let unit = rate_unit(row, floor);
            self.units_of_rates.push(unit);
            for (rate, own) in row.iter().zip(self.problem.capacity) {
                let (rate, held) = if *own > 0.0 {
                    (rate / unit, gpus / own)
                } else {
                    (0.0, 0.0)
                };
                self.scaled.push(rate);
                self.held.push(held);
            }
        }
    }

    fn add_pair(&mut self, pair: &Pair) {
        let problem = self.problem;
        let jobs = pair.classes.map(|class| problem.members[class]);
        let unit = jobs[0].min(jobs[1]);
        let mut sides = [(0, [0.0; 2]); 2];
        for (side, (class, rate)) in pair.classes.into_iter().zip(pair.rates).enumerate() {
            let row = &problem.rates[class * self.types..(class + 1) * self.types];
            let part = unit / jobs[side];
            let scaled = rate / rate_unit(row, problem.floors[class]);
            sides[side] = (class, [part, part * scaled]);
        }
        let gpus = unit * problem.gangs[pair.classes[0]];
        self.sides.push(sides);
        self.units.push(unit);
        self.held.push(gpus / problem.capacity[pair.gpu_type]);
    }

    /// Returns the coefficients of an objective, scaled so that the largest absolute value is 1.
    fn objective(&self, which: Objective) -> Vec<f64> {
        let problem = self.problem;
        let gains = match which {
            Objective::Level => &[],
            Objective::Gains => problem.gains,
            Objective::Then => problem.then.unwrap_or_default(),
        };
        let own = gains.iter().enumerate();
        let mut whole: Vec<f64> = own
            .map(|(at, gain)| problem.members[at / self.types] * gain)
            .collect();
        whole.resize(self.scaled.len(), 0.0);
        let pairs = problem.pairs.iter().zip(&self.units);
        whole.extend(pairs.map(|(pair, unit)| match which {
            Objective::Level => 0.0,
            Objective::Gains => unit * pair.gain,
            Objective::Then => unit * pair.then,
        }));
        whole.push(f64::from(u8::from(matches!(which, Objective::Level))));
        let is_usable = |at: usize| self.scaled.get(at).is_none_or(|rate| *rate > 0.0);
        let used = whole.iter().enumerate().filter(|(at, _)| is_usable(*at));
        let largest = used.fold(f64::MIN_POSITIVE, |most, (_, own)| own.abs().max(most));
        whole.into_iter().map(|own| own / largest).collect()
    }

    /// Returns the keys of a class at the vertex that is optimal for the problem's prices.
    fn first_keys(&self, class: usize, wanted: &[f64]) -> Result<[usize; 2], SolverError> {
        let (time, surplus) = (self.types, self.types + 1);
        let at = class * self.types;
        let needs = self.problem.floors[class] > 0.0;
        let worth = |kind: usize| {
            let price = self.problem.prices.get(kind).copied().unwrap_or(0.0);
            wanted[at + kind] - price * self.held[at + kind]
        };
        let usable = |kind: &usize| self.is_usable(class, *kind);
        let mut best = (!needs).then_some((0.0, [time, surplus]));
        let mut offer = |value: f64, keys: [usize; 2]| {
            if best.is_none_or(|(most, _)| value > most) {
                best = Some((value, keys));
            }
        };
        for kind in (0..self.types).filter(usable) {
            let rate = self.scaled[at + kind];
            if !needs {
                offer(worth(kind), [kind, surplus]);
                continue;
            }
            if rate < 1.0 {
                continue;
            }
            offer(worth(kind), [kind, surplus]);
            offer(worth(kind) / rate, [kind, time]);
            for slow in (0..self.types).filter(usable) {
                let other = self.scaled[at + slow];
                if other < 1.0 {
                    let part = (1.0 - other) / (rate - other);
                    let value = part * worth(kind) + (1.0 - part) * worth(slow);
                    offer(value, [slow, kind]);
                }
            }
        }
        best.map(|(_, keys)| keys).ok_or(SolverError::Input {
            what: "floors",
            expected: "rates that a job can reach on its own",
        })
    }

    /// Returns a column's entries in the two rows of a class: time and floor.
    fn own_rows(&self, class: usize, column: usize) -> Rows {
        if column < self.types {
            return [1.0, self.scaled[class * self.types + column]];
        }
        if column == self.types {
            [1.0, 0.0]
        } else {
            [0.0, -1.0]
        }
    }

    /// Calls `visit` for each class whose rows contain entries of a column, and passes these entries.
    #[inline]
    fn each_class(&self, extra: Extra, mut visit: impl FnMut(usize, Rows)) {
        match extra {
            Extra::Own(class, column) => visit(class, self.own_rows(class, column)),
            Extra::Pair(pair) => {
                for (class, rows) in self.sides[pair] {
                    visit(class, rows);
                }
            }
            Extra::Level => {
                let rising = self.rises.iter().enumerate();
                rising
                    .filter(|(_, speed)| **speed > 0.0)
                    .for_each(|(class, speed)| visit(class, [0.0, -speed]));
            }
            Extra::Left(_) | Extra::Lacks(_) => {}
        }
    }

    /// Returns the index of a column in the objectives, and its GPU type; `None` for slacks.
    #[inline]
    fn at(&self, extra: Extra) -> Option<(usize, usize)> {
        let own = self.scaled.len();
        match extra {
            Extra::Own(class, column) => {
                (column < self.types).then_some((class * self.types + column, column))
            }
            Extra::Pair(pair) => Some((own + pair, self.problem.pairs[pair].gpu_type)),
            Extra::Level => Some((own + self.sides.len(), 0)),
            Extra::Left(_) | Extra::Lacks(_) => None,
        }
    }

    /// Adds a multiple of a column's entries in the linking rows.
    #[inline]
    fn add_links(&self, extra: Extra, times: f64, into: &mut [f64]) {
        if let Some((at, gpu_type)) = self.at(extra) {
            into[gpu_type] += times * self.held[at];
            if !self.kept.is_empty() {
                into[self.types] -= times * self.kept[at];
            }
        }
    }

    #[inline]
    fn cost_of(&self, extra: Extra) -> f64 {
        self.at(extra).map_or(0.0, |(at, _)| self.cost[at])
    }

    /// Expresses entries in the rows of a class as a combination of its key columns.
    #[inline]
    fn by_keys(&self, class: usize, rows: Rows) -> Rows {
        let inverse = &self.inverse[class];
        inverse.map(|row| row[0] * rows[0] + row[1] * rows[1])
    }

    #[inline]
    fn pin_of(&self, class: usize, place: usize) -> Option<usize> {
        self.pins.iter().position(|pin| *pin == (class, place))
    }

    fn invert_keys(&mut self, class: usize) -> Result<(), SolverError> {
        let [a, b] = self.keys[class].map(|column| self.own_rows(class, column));
        let det = a[0] * b[1] - b[0] * a[1];
        if det.abs() < f64::MIN_POSITIVE || !det.is_finite() {
            return Err(self.stuck());
        }
        self.inverse[class] = [[b[1] / det, -b[0] / det], [-a[1] / det, a[0] / det]];
        Ok(())
    }

    fn stuck(&self) -> SolverError {
        SolverError::Steps { steps: self.steps }
    }

    fn right_of(&self, class: usize) -> Rows {
        [1.0, f64::from(u8::from(self.has_floor[class]))]
    }

    /// Adds a multiple of the amounts that the keys of a class use in the linking rows, as if no other column of the
    /// class were basic.
    fn add_keys(&self, class: usize, times: f64, into: &mut [f64]) {
        let right = self.right_of(class);
        for (key, row) in self.keys[class].iter().zip(&self.inverse[class]) {
            let value = row[0] * right[0] + row[1] * right[1];
            self.add_links(Extra::Own(class, *key), times * value, into);
        }
    }

    fn set_residual(&mut self) {
        let mut residual = self.right.clone();
        for class in 0..self.keys.len() {
            self.add_keys(class, -1.0, &mut residual);
        }
        self.residual = residual;
    }

    /// Returns the residuals of the linking rows, followed by the values of the pinned keys before other columns are
    /// subtracted.
    fn left_by_keys(&self) -> Links {
        let mut left = self.residual.clone();
        for &(class, place) in &self.pins {
            left.push(self.by_keys(class, self.right_of(class))[place]);
        }
        left
    }

    /// Returns a column's cost and its entries in the linking rows, after the keys of its classes have adjusted to it.
    fn reduced(&self, extra: Extra) -> (Links, f64) {
        let mut links: Links = smallvec![0.0; self.links + self.pins.len()];
        let mut cost = self.cost_of(extra);
        match extra {
            Extra::Left(link) => links[link] = 1.0,
            Extra::Lacks(link) => {
                links[link] = -1.0;
                cost = if self.is_first_phase { -1.0 } else { 0.0 };
            }
            _ => self.add_links(extra, 1.0, &mut links),
        }
        self.each_class(extra, |class, rows| {
            let by_keys = self.by_keys(class, rows);
            for (place, times) in by_keys.into_iter().enumerate() {
                let key = Extra::Own(class, self.keys[class][place]);
                self.add_links(key, -times, &mut links);
                cost -= times * self.cost_of(key);
                if let Some(pin) = self.pin_of(class, place) {
                    links[self.links + pin] += times;
                }
            }
        });
        (links, cost)
    }

    /// Inverts the working basis and updates the multipliers.
    fn invert_working(&mut self) -> Result<(), SolverError> {
        let reduced = self.extras.iter().map(|&extra| self.reduced(extra));
        let (columns, costs): (SmallVec<[Links; 6]>, Links) = reduced.unzip();
        self.working = Square::inverse(&columns).ok_or(self.stuck())?;
        self.prices = self.working.left_times(&costs);
        let prices = self.prices.iter().map(|price| self.rounding * price.abs());
        self.noise = prices.fold(OPTIMAL, f64::max);
        Ok(())
    }

    /// Returns the gain of a column minus the price of the linking rows that it uses; the column is given by its index
    /// and GPU type.
    #[inline]
    fn worth(&self, (at, gpu_type): (usize, usize)) -> f64 {
        let mut worth = self.cost[at] - self.prices[gpu_type] * self.held[at];
        if !self.kept.is_empty() {
            worth += self.prices[self.types] * self.kept[at];
        }
        worth
    }

    /// Returns the multipliers of the two rows of a class.
    #[inline]
    fn duals(&self, class: usize) -> Rows {
        let (keys, inverse) = (self.keys[class], &self.inverse[class]);
        let own = class * self.types;
        let mut worth = keys.map(|key| {
            if key < self.types {
                self.worth((own + key, key))
            } else {
                0.0
            }
        });
        for (pin, &(of, place)) in self.pins.iter().enumerate() {
            if of == class {
                worth[place] += self.prices[self.links + pin];
            }
        }
        let [a, b] = worth;
        let row = |row: usize| a * inverse[0][row] + b * inverse[1][row];
        [row(0), row(1)]
    }

    /// Returns the column with the largest gain among the columns of a class, if one has a gain.
    fn best_of(&self, class: usize) -> Option<(f64, Extra)> {
        let (own, [time, floor]) = (class * self.types, self.duals(class));
        let mut best = (self.noise, None);
        let mut offer = |column: usize, gain: f64| {
            if gain > best.0 && !self.is_basic(class, column) {
                best = (gain, Some(Extra::Own(class, column)));
            }
        };
        for column in 0..self.types {
            let rate = self.scaled[own + column];
            if rate > 0.0 {
                let worth = self.worth((own + column, column));
                offer(column, worth - time - floor * rate);
            }
        }
        offer(self.types, -time);
        offer(self.types + 1, floor);
        best.1.map(|extra| (best.0, extra))
    }

    fn is_basic(&self, class: usize, column: usize) -> bool {
        let is_key =
            |place: usize| self.keys[class][place] == column && self.pin_of(class, place).is_none();
        is_key(0) || is_key(1) || self.extras.contains(&Extra::Own(class, column))
    }

    /// Returns the gain of a pair or of the level, given the multipliers of the classes.
    fn gain_of(&self, extra: Extra, duals: impl Fn(usize) -> Rows) -> Option<(f64, Extra)> {
        let mut gain = self.at(extra).map_or(0.0, |at| self.worth(at));
        self.each_class(extra, |class, rows| {
            let [time, floor] = duals(class);
            gain -= time * rows[0] + floor * rows[1];
        });
        (gain > self.noise && !self.extras.contains(&extra)).then_some((gain, extra))
    }

    /// Returns the pairs with a gain, but only the best one of those with the same first class; also returns the level
    /// if it has a gain.
    fn shared_offers(&self) -> Vec<(f64, Extra)> {
        if self.sides.is_empty() && !self.problem.rises {
            return Vec::new();
        }
        let duals: Vec<Rows> = (0..self.keys.len())
            .map(|class| self.duals(class))
            .collect();
        let level = self.problem.rises.then_some(Extra::Level);
        let mut offers: Vec<(f64, Extra)> = Vec::new();
        let mut first = usize::MAX;
        for (pair, sides) in self.sides.iter().enumerate() {
            if let Some(offer) = self.gain_of(Extra::Pair(pair), |class| duals[class]) {
                match offers.last_mut() {
                    Some(best) if first == sides[0].0 => {
                        if offer.0 > best.0 {
                            *best = offer;
                        }
                    }
                    _ => offers.push(offer),
                }
                first = sides[0].0;
            }
        }
        offers.extend(level.and_then(|level| self.gain_of(level, |class| duals[class])));
        offers
    }

    /// Returns the slack of a linking row, if it has a gain.
    fn left_of(&self, link: usize) -> Option<(f64, Extra)> {
        let (gain, extra) = (-self.prices[link], Extra::Left(link));
        (gain > self.noise && !self.extras.contains(&extra)).then_some((gain, extra))
    }

    /// Returns columns with a gain, in descending order of gain. Each class contributes at most one of its columns and
    /// one of its pairs.
    fn offers(&self) -> Vec<(f64, Extra)> {
        let classes = (0..self.keys.len()).filter_map(|class| self.best_of(class));
        let links = (0..self.links).filter_map(|link| self.left_of(link));
        let mut offers: Vec<(f64, Extra)> = links.chain(classes).collect();
        offers.extend(self.shared_offers());
        offers.sort_by(|a, b| b.0.total_cmp(&a.0));
        offers
    }

    /// Finds the classes in whose rows a moving column has entries, in ascending order. Returns, for each of them, the
    /// values of its keys, and the speeds at which these values fall while the entering column rises.
    fn moves(&self, entering: Option<Extra>, values: &[f64], falls: &[f64]) -> Moves {
        let mut classes: SmallVec<[usize; 7]> = SmallVec::new();
        for &extra in self.extras.iter().chain(&entering) {
            self.each_class(extra, |class, _| classes.push(class));
        }
        classes.sort_unstable();
        classes.dedup();
        let mut moves: Moves = classes
            .into_iter()
            .map(|class| Move {
                class,
                values: self.right_of(class),
                falls: [0.0; 2],
            })
            .collect();
        // `each_class` visits the classes of a column in order, and each class is usually next to the previous one.
        let find = |moves: &[Move], next: usize, class: usize| {
            if moves.get(next).is_some_and(|own| own.class == class) {
                return next;
            }
            let found = moves.binary_search_by_key(&class, |own| own.class);
            found.expect("every class of these columns has a move")
        };
        for (&extra, (value, fall)) in self.extras.iter().zip(values.iter().zip(falls)) {
            let mut next = 0;
            self.each_class(extra, |class, rows| {
                let at = find(&moves, next, class);
                next = at + 1;
                let (own, by_keys) = (&mut moves[at], self.by_keys(class, rows));
                own.values = minus(own.values, *value, rows);
                own.falls = minus(own.falls, *fall, by_keys);
            });
        }
        if let Some(entering) = entering {
            let mut next = 0;
            self.each_class(entering, |class, rows| {
                let at = find(&moves, next, class);
                next = at + 1;
                let by_keys = self.by_keys(class, rows);
                moves[at].falls = minus(moves[at].falls, -1.0, by_keys);
            });
        }
        for own in &mut moves {
            own.values = self.by_keys(own.class, own.values);
        }
        moves
    }

    /// Takes simplex steps until the plan is optimal for the current objective. Pricing a class is cheap, but a scan of
    /// all classes is not. Each class with a gain is therefore priced again before the next scan.
    fn run(&mut self) -> Result<(), SolverError> {
        let most = 100 * (self.keys.len() + self.links) as u32 + 1_000;
        let (before, mut still) = (self.steps, 0);
        self.invert_working()?;
        loop {
            let mut offers = self.offers();
            if offers.is_empty() {
                return Ok(());
            }
            if still > STALLED {
                // The first column with a gain enters the basis, however small the gain is.
                offers.sort_by_key(|(_, extra)| extra.place());
                offers.truncate(1);
            }
            for (_, offered) in offers {
                let again = match offered {
                    Extra::Own(class, _) => self.best_of(class),
                    Extra::Pair(_) | Extra::Level => {
                        self.gain_of(offered, |class| self.duals(class))
                    }
                    Extra::Left(link) | Extra::Lacks(link) => self.left_of(link),
                };
                let Some((_, entering)) = again else { continue };
                let far = self.step(entering)?;
                self.steps += 1;
                still = if far > 0.0 { 0 } else { still + 1 };
                if self.steps - before > most {
                    return Err(self.stuck());
                }
            }
        }
    }

    /// Moves a column into the basis. Returns its new value.
    fn step(&mut self, entering: Extra) -> Result<f64, SolverError> {
        let (column, _) = self.reduced(entering);
        let falls = self.working.times(&column);
        let values = self.working.times(&self.left_by_keys());
        // Each candidate is (distance, size of the pivot, leaving column). The smallest distance wins, then the largest
        // pivot.
        let mut leaving: Option<(f64, f64, Leaving)> = None;
        let mut offer = |value: f64, fall: f64, leaves: Leaving| {
            if fall > PIVOT {
                let far = value.max(0.0) / fall;
                let nearer = leaving.is_none_or(|(least, size, _)| {
                    far < least - 1e-14 * least.abs() || (far <= least && fall > size)
                });
                if nearer {
                    leaving = Some((far, fall, leaves));
                }
            }
        };
        for at in 0..self.extras.len() {
            offer(values[at], falls[at], Leaving::Extra(at));
        }
        for own in self.moves(Some(entering), &values, &falls) {
            for place in 0..2 {
                if self.pin_of(own.class, place).is_none() {
                    let key = Leaving::Key(own.class, place);
                    offer(own.values[place], own.falls[place], key);
                }
            }
        }
        let (far, _, leaving) = leaving.ok_or(self.stuck())?;
        match leaving {
            Leaving::Extra(at) => self.extras[at] = entering,
            Leaving::Key(class, place) => {
                self.pins.push((class, place));
                self.extras.push(entering);
            }
        }
        self.unpin()?;
        self.invert_working()?;
        Ok(far)
    }

    /// Replaces each pinned key with another basic column of its class, if possible.
    fn unpin(&mut self) -> Result<(), SolverError> {
        let mut pin = 0;
        while let Some(&(class, place)) = self.pins.get(pin) {
            let mut best: (f64, Option<(usize, usize)>) = (PIVOT, None);
            for (at, extra) in self.extras.iter().enumerate() {
                if let Extra::Own(of, column) = *extra
                    && of == class
                {
                    let size = self.by_keys(class, self.own_rows(class, column))[place].abs();
                    if size > best.0 {
                        best = (size, Some((at, column)));
                    }
                }
            }
            let Some((at, column)) = best.1 else {
                pin += 1;
                continue;
            };
            self.pins.remove(pin);
            let mut residual = std::mem::take(&mut self.residual);
            self.add_keys(class, 1.0, &mut residual);
            self.keys[class][place] = column;
            self.invert_keys(class)?;
            self.add_keys(class, -1.0, &mut residual);
            self.residual = residual;
            // The last extra column is the one that has just entered. It takes the position of the column that became a
            // key.
            self.extras.swap_remove(at);
        }
        Ok(())
    }

    /// Finds an initial plan that uses no more GPUs than the cluster has.
    fn reach_floors(&mut self) -> Result<(), SolverError> {
        if !self.is_first_phase {
            return Ok(());
        }
        self.run()?;
        self.set_residual();
        let values = self.working.times(&self.left_by_keys());
        for (extra, value) in self.extras.iter_mut().zip(values) {
            if let Extra::Lacks(link) = *extra {
                if value > LACKING {
                    return Err(SolverError::Steps { steps: self.steps });
                }
                *extra = Extra::Left(link);
            }
        }
        self.is_first_phase = false;
        self.invert_working()
    }

    /// Raises the floors to the current level. Floors that limit the level stop rising.
    ///
    /// The multipliers prove that no plan can raise all limiting floors above the level. In every plan that reaches the
    /// level, these floors therefore stay exactly at the level.
    fn lift(&mut self, water: &mut Water) -> Result<(), SolverError> {
        let rising = (0..self.keys.len()).filter(|&class| self.rises[class] > 0.0);
        let weight = |class: usize| -self.duals(class)[1] * self.rises[class];
        let weights: Vec<(usize, f64)> = rising.map(|class| (class, weight(class))).collect();
        let largest = weights
            .iter()
            .copied()
            .reduce(|a, b| if b.1 > a.1 { b } else { a });
        let Some((first, most)) = largest.filter(|(_, most)| *most > 0.0) else {
            return Err(self.stuck());
        };
        let values = self.working.times(&self.left_by_keys());
        let level = self.extras.iter().position(|extra| *extra == Extra::Level);
        let level = level.ok_or(self.stuck())?;
        let height = values[level].max(0.0);
        let mut times = vec![1.0; self.keys.len()];
        for (class, weight) in weights {
            let [_, before] = self.right_of(class);
            let risen = before + self.rises[class] * height;
            water.done[class] = weight > LIMITS * most;
            // At a full type, a class without a floor can rise by a rounding error, which does not count as a floor.
            if risen > PIVOT {
                times[class] = risen;
                water.reached[class] *= risen;
                self.has_floor[class] = true;
            }
        }
        self.scale_floors(&times)?;
        for (speed, done) in self.rises.iter_mut().zip(&water.done) {
            if *done {
                *speed = 0.0;
            }
        }
        // After the scaling, the level is 0, and so is the slack of the floor of each limiting class. The slack of the
        // class with the largest multiplier can therefore replace the level in the basis.
        self.extras[level] = Extra::Own(first, self.types + 1);
        self.unpin()?;
        self.invert_working()
    }

    /// Divides the rates of each class by a factor.
    fn scale_floors(&mut self, times: &[f64]) -> Result<(), SolverError> {
        for (class, times) in times.iter().enumerate() {
            if times.to_bits() == 1.0_f64.to_bits() {
                continue;
            }
            for rate in &mut self.scaled[class * self.types..(class + 1) * self.types] {
                *rate /= times;
            }
            self.invert_keys(class)?;
        }
        for sides in &mut self.sides {
            for (class, rows) in sides {
                rows[1] /= times[*class];
            }
        }
        self.set_residual();
        Ok(())
    }

    /// Sets the speed at which each floor rises. The speeds are scaled so that the fastest floor doubles when the level
    /// rises by 1.
    fn set_speeds(&mut self, water: &Water, speeds: Option<Speeds<'_>>) {
        let Some(speeds) = speeds else { return };
        let speeds = speeds(&water.done);
        let unit = |class: usize| {
            let times = if self.has_floor[class] {
                water.reached[class]
            } else {
                1.0
            };
            self.units_of_rates[class] * times
        };
        let rising = speeds.iter().enumerate().filter(|(_, speed)| **speed > 0.0);
        let least = rising.fold(f64::INFINITY, |least, (class, speed)| {
            least.min(unit(class) / speed)
        });
        let each = speeds.iter().enumerate();
        self.rises = each
            .map(|(class, speed)| {
                if *speed > 0.0 {
                    least * speed / unit(class)
                } else {
                    0.0
                }
            })
            .collect();
    }

    /// Adds a row that preserves the objective value that the plan has reached.
    fn keep(&mut self, objective: Objective) -> Result<(), SolverError> {
        self.kept = self.objective(objective);
        self.right[self.types] = 0.0;
        self.set_residual();
        // The new row is the last one, and its slack is basic from the start.
        self.invert_working()?;
        let values = self.working.times(&self.left_by_keys());
        let place = self
            .extras
            .iter()
            .position(|extra| *extra == Extra::Left(self.types));
        let total = place.map_or(0.0, |at| values[at]);
        let kept = if self.problem.rises {
            ((1.0 + total) * (1.0 - SLACK) - 1.0).max(0.0)
        } else {
            total * (1.0 - SLACK)
        };
        self.right[self.types] = -kept;
        self.set_residual();
        Ok(())
    }

    fn plan(&mut self) -> Result<Chosen, SolverError> {
        self.set_residual();
        self.invert_working()?;
        let values = self.working.times(&self.left_by_keys());
        let mut plan = Chosen {
            shares: vec![0.0; self.scaled.len()],
            together: vec![0.0; self.sides.len()],
            value: 0.0,
            weights: Vec::new(),
            steps: self.steps,
        };
        let mut set = |extra: Extra, value: f64| {
            match extra {
                Extra::Own(class, column) if column < self.types => {
                    plan.shares[class * self.types + column] = value;
                }
                Extra::Pair(pair) => plan.together[pair] = value * self.units[pair],
                Extra::Level => plan.value = value,
                _ => {}
            }
            value >= -1e-7 // This is the tolerance of HiGHS.
        };
        let mut is_fine = true;
        for (&extra, &value) in self.extras.iter().zip(&values) {
            is_fine &= set(extra, value);
        }
        let falls = vec![0.0; values.len()];
        let moved = self.moves(None, &values, &falls);
        let mut moved = moved.iter().peekable();
        for class in 0..self.keys.len() {
            let own = moved.next_if(|own| own.class == class);
            let known = own.map_or_else(
                || self.by_keys(class, self.right_of(class)),
                |own| own.values,
            );
            for (key, value) in self.keys[class].into_iter().zip(known) {
                is_fine &= set(Extra::Own(class, key), value);
            }
        }
        if !is_fine {
            return Err(self.stuck());
        }
        if !self.problem.rises {
            plan.value = self.problem.total(&plan);
        }
        Ok(plan)
    }
}

fn minus(rows: Rows, times: f64, other: Rows) -> Rows {
    [rows[0] - times * other[0], rows[1] - times * other[1]]
}

type Moves = SmallVec<[Move; 7]>;

/// The values of the keys of a class, and the speeds at which these values fall.
#[derive(Clone, Copy, Debug)]
struct Move {
    class: usize,
    values: Rows,
    falls: Rows,
}

/// Returns the original value of a scaled rate of 1: the floor, or the largest rate if there is no floor.
fn rate_unit(rates: &[f64], floor: f64) -> f64 {
    let largest = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    if floor > 0.0 { floor } else { largest }
}

#[derive(Clone, Copy, Debug)]
enum Leaving {
    Extra(usize),
    Key(usize, usize),
}
