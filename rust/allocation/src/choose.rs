//! The best plan above floors, exactly: a simplex method that knows the shape of these programs.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | `x[c,k]` | shares | time of one job of class c on type k |
//! | `n_c`, `s_c` | `members`, `gangs` | jobs of the class, GPUs of a job |
//! | `W_k` | `capacity` | GPUs of a type |
//! | `f_c` | `floors` | least `rates . x` of a job |
//! | `q` | `prices` | multipliers of the linking rows |
//!
//! Maximises `sum n gains . x` subject to `sum_k x <= 1`, `rates . x >= f` for each class, and `sum n s x <= W` for each
//! type. A class has two rows of its own, so that two of its columns are always basic (its keys). Only as many other
//! columns are basic as there are linking rows, one per type: prices come from a system of that size, and a step costs
//! nothing that grows with the classes. Which of them gain is found by a look at all, O(classes x types), and each of these is
//! asked again at the prices of then, so that looks are few. It always starts from nothing: equal programs give equal bits,
//! whatever was solved before.

use super::dual::SolverError;
use super::square::{Links, Square};
use smallvec::{SmallVec, smallvec};

/// A reduced cost up to this is none; the largest gain of a class is 1.
const OPTIMAL: f64 = 1e-11;
/// A pivot below this is noise.
const PIVOT: f64 = 1e-9;
/// What all types together may lack after the first phase, as parts of them.
const LACKING: f64 = 1e-11;
/// Steps without progress after which the first possible column is taken; what cycles even so ends at the limit of steps.
const STALLED: u32 = 40;
/// What a second objective may give up of the first: below what any comparison looks at, above noise.
const SLACK: f64 = 1e-9;

/// A program; tables are row by row, `classes x types`.
#[derive(Clone, Copy, Debug)]
pub struct Choose<'a> {
    /// What the floors ask for; 0 where a class cannot run.
    pub rates: &'a [f64],
    /// What a share counts.
    pub gains: &'a [f64],
    /// What is maximised among the optima, if anything.
    pub then: Option<&'a [f64]>,
    /// GPUs of one job.
    pub gangs: &'a [f64],
    /// Jobs of each class.
    pub members: &'a [f64],
    /// GPUs of each type.
    pub capacity: &'a [f64],
    /// Least rate of a job of each class.
    pub floors: &'a [f64],
    /// Prices of all GPUs of each type from which the first plan is made; empty for none.
    pub prices: &'a [f64],
}

/// The plan, and the steps that it took.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Shares of one job of each class, `classes x types`.
    pub shares: Vec<f64>,
    /// The first objective.
    pub value: f64,
    /// Simplex steps.
    pub steps: u32,
}

/// A basic column beside the keys: of a class, or of a linking row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extra {
    Own(usize, usize),
    /// What is left of a linking row.
    Left(usize),
    /// What it lacks, in the first phase only.
    Lacks(usize),
}

impl Extra {
    /// Its place in an order of all columns.
    fn place(self) -> (usize, usize) {
        match self {
            Self::Left(link) | Self::Lacks(link) => (0, link),
            Self::Own(class, column) => (1 + class, column),
        }
    }
}

type Pair = [f64; 2];

struct Simplex<'a> {
    problem: &'a Choose<'a>,
    types: usize,
    links: usize,
    /// Rates over floors.
    scaled: Vec<f64>,
    /// Objective of a share, all members together; none in the first phase.
    cost: Vec<f64>,
    /// GPUs of all members over those of the type; 0 where a class cannot run.
    held: Vec<f64>,
    /// What counts for the objective that is kept.
    kept: Vec<f64>,
    right: Links,
    keys: Vec<[usize; 2]>,
    /// Inverse of the two key columns, row by row.
    inverse: Vec<[Pair; 2]>,
    extras: SmallVec<[Extra; 6]>,
    /// Inverse of the working basis, and the multipliers of the linking rows that follow from it.
    working: Square,
    prices: Links,
    /// What the keys alone leave of the linking rows.
    residual: Links,
    is_first_phase: bool,
    steps: u32,
}

impl Choose<'_> {
    /// Solves to a vertex.
    ///
    /// # Errors
    /// [`SolverError`] if no plan reaches the floors, or rounding stands in the way.
    pub fn solve(&self) -> Result<Chosen, SolverError> {
        let mut simplex = Simplex::new(self)?;
        if simplex.is_first_phase {
            simplex.run()?;
            simplex.end_first_phase()?;
        }
        simplex.cost = simplex.objective(self.gains);
        simplex.run()?;
        let first = if self.then.is_some() {
            simplex.shares()?
        } else {
            Vec::new()
        };
        if let Some(then) = self.then {
            simplex.keep(self.gains)?;
            simplex.cost = simplex.objective(then);
            simplex.run()?;
        }
        let shares = simplex.shares()?;
        let first = if self.then.is_some() { &first } else { &shares };
        let counted = first.iter().zip(self.gains).enumerate();
        let value = counted.map(|(at, (x, gain))| self.members[at / simplex.types] * gain * x);
        Ok(Chosen {
            value: value.sum(),
            steps: simplex.steps,
            shares,
        })
    }
}

impl<'a> Simplex<'a> {
    fn new(problem: &'a Choose<'a>) -> Result<Self, SolverError> {
        let (classes, types) = (problem.gangs.len(), problem.capacity.len());
        let sizes = [problem.rates.len(), problem.gains.len()];
        let columns = [problem.members.len(), problem.floors.len()];
        if sizes != [classes * types; 2] || columns != [classes; 2] {
            return Err(SolverError::Input {
                what: "tables",
                expected: "classes x types entries, and one number per class",
            });
        }
        let links = types + usize::from(problem.then.is_some());
        let mut simplex = Self {
            types,
            links,
            scaled: Vec::with_capacity(classes * types),
            cost: Vec::new(),
            held: Vec::with_capacity(classes * types),
            kept: Vec::new(),
            right: smallvec![1.0; types],
            keys: Vec::with_capacity(classes),
            inverse: vec![[[0.0; 2]; 2]; classes],
            extras: SmallVec::new(),
            working: Square::default(),
            prices: Links::new(),
            residual: Links::new(),
            is_first_phase: false,
            steps: 0,
            problem,
        };
        simplex.right.resize(links, 0.0);
        if problem.then.is_some() {
            simplex.kept = vec![0.0; classes * types];
        }
        for (class, row) in problem.rates.chunks_exact(types).enumerate() {
            let (floor, gpus) = (
                problem.floors[class],
                problem.members[class] * problem.gangs[class],
            );
            let largest = row.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            let unit = if floor > 0.0 { floor } else { largest };
            for (rate, own) in row.iter().zip(problem.capacity) {
                let (rate, held) = if *own > 0.0 {
                    (rate / unit, gpus / own)
                } else {
                    (0.0, 0.0)
                };
                simplex.scaled.push(rate);
                simplex.held.push(held);
            }
        }
        let wanted = simplex.objective(problem.gains);
        for class in 0..classes {
            let keys = simplex.first_keys(class, &wanted)?;
            simplex.keys.push(keys);
            simplex.invert_keys(class)?;
        }
        simplex.cost = vec![0.0; classes * types];
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

    /// The objective with its largest entry at 1.
    fn objective(&self, gains: &[f64]) -> Vec<f64> {
        let whole = gains.iter().enumerate();
        let whole: Vec<f64> = whole
            .map(|(at, gain)| self.problem.members[at / self.types] * gain)
            .collect();
        let used = whole.iter().enumerate();
        let used = used.filter(|(at, _)| self.is_usable(at / self.types, at % self.types));
        let largest = used.fold(f64::MIN_POSITIVE, |most, (_, own)| own.abs().max(most));
        whole.into_iter().map(|own| own / largest).collect()
    }

    /// The vertex of a class that is best at the given prices.
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
            expected: "rates that a job alone can reach",
        })
    }

    /// The two rows of a class in a column: time, and the floor.
    fn own_rows(&self, class: usize, column: usize) -> Pair {
        if column < self.types {
            return [1.0, self.scaled[class * self.types + column]];
        }
        if column == self.types {
            [1.0, 0.0]
        } else {
            [0.0, -1.0]
        }
    }

    /// Adds a multiple of a column's entries in the linking rows.
    fn add_links(&self, class: usize, column: usize, times: f64, into: &mut [f64]) {
        if column < self.types {
            into[column] += times * self.held[class * self.types + column];
            if !self.kept.is_empty() {
                into[self.types] -= times * self.kept[class * self.types + column];
            }
        }
    }

    fn cost_of(&self, class: usize, column: usize) -> f64 {
        if column < self.types {
            self.cost[class * self.types + column]
        } else {
            0.0
        }
    }

    /// A column of a class in terms of its keys.
    fn by_keys(&self, class: usize, column: usize) -> Pair {
        let (inverse, own) = (&self.inverse[class], self.own_rows(class, column));
        inverse.map(|row| row[0] * own[0] + row[1] * own[1])
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

    fn right_of(&self, class: usize) -> Pair {
        [1.0, f64::from(u8::from(self.problem.floors[class] > 0.0))]
    }

    /// What a class's keys take of the linking rows if none of its other columns is basic.
    fn add_keys(&self, class: usize, times: f64, into: &mut [f64]) {
        let right = self.right_of(class);
        for (key, row) in self.keys[class].iter().zip(&self.inverse[class]) {
            let value = row[0] * right[0] + row[1] * right[1];
            self.add_links(class, *key, times * value, into);
        }
    }

    fn set_residual(&mut self) {
        let mut residual = self.right.clone();
        for class in 0..self.keys.len() {
            self.add_keys(class, -1.0, &mut residual);
        }
        self.residual = residual;
    }

    /// A column in the linking rows, once the keys have made room for it in the rows of its class; and its cost.
    fn reduced(&self, extra: Extra) -> (Links, f64) {
        let mut links: Links = smallvec![0.0; self.links];
        let mut cost = 0.0;
        match extra {
            Extra::Own(class, column) => {
                self.add_links(class, column, 1.0, &mut links);
                cost = self.cost_of(class, column);
                let by_keys = self.by_keys(class, column);
                for (key, times) in self.keys[class].into_iter().zip(by_keys) {
                    self.add_links(class, key, -times, &mut links);
                    cost -= times * self.cost_of(class, key);
                }
            }
            Extra::Left(link) => links[link] = 1.0,
            Extra::Lacks(link) => {
                links[link] = -1.0;
                cost = if self.is_first_phase { -1.0 } else { 0.0 };
            }
        }
        (links, cost)
    }

    /// Inverts the working basis.
    fn invert_working(&mut self) -> Result<(), SolverError> {
        let columns = self.extras.iter().map(|&extra| self.reduced(extra).0);
        let columns: SmallVec<[Links; 6]> = columns.collect();
        self.working = Square::inverse(&columns).ok_or(self.stuck())?;
        Ok(())
    }

    fn set_prices(&mut self) {
        let costs = self.extras.iter().map(|&extra| self.reduced(extra).1);
        self.prices = self.working.left_times(&costs.collect::<Links>());
    }

    /// What a column adds to the objective beyond what it takes of the linking rows, at the present prices.
    fn worth(&self, class: usize, column: usize) -> f64 {
        if column >= self.types {
            return 0.0;
        }
        let at = class * self.types + column;
        let mut worth = self.cost[at] - self.prices[column] * self.held[at];
        if !self.kept.is_empty() {
            worth += self.prices[self.types] * self.kept[at];
        }
        worth
    }

    /// The column of a class that gains most.
    fn best_of(&self, class: usize) -> Option<(f64, Extra)> {
        let (keys, inverse) = (self.keys[class], &self.inverse[class]);
        let [a, b] = keys.map(|key| self.worth(class, key));
        let time = a * inverse[0][0] + b * inverse[1][0];
        let floor = a * inverse[0][1] + b * inverse[1][1];
        let mut best = (OPTIMAL, None);
        let mut offer = |column: usize, gain: f64| {
            if gain > best.0 && !keys.contains(&column) {
                let extra = Extra::Own(class, column);
                if !self.extras.contains(&extra) {
                    best = (gain, Some(extra));
                }
            }
        };
        for column in 0..self.types {
            let rate = self.scaled[class * self.types + column];
            if rate > 0.0 {
                offer(column, self.worth(class, column) - time - floor * rate);
            }
        }
        offer(self.types, -time);
        offer(self.types + 1, floor);
        best.1.map(|extra| (best.0, extra))
    }

    /// What is left of a linking row, if that gains.
    fn left_of(&self, link: usize) -> Option<(f64, Extra)> {
        let (gain, extra) = (-self.prices[link], Extra::Left(link));
        (gain > OPTIMAL && !self.extras.contains(&extra)).then_some((gain, extra))
    }

    /// Columns that gain, at most one of each class: those that gain most first.
    fn offers(&self) -> Vec<(f64, Extra)> {
        let classes = (0..self.keys.len()).filter_map(|class| self.best_of(class));
        let links = (0..self.links).filter_map(|link| self.left_of(link));
        let mut offers: Vec<(f64, Extra)> = links.chain(classes).collect();
        offers.sort_by(|a, b| b.0.total_cmp(&a.0));
        offers
    }

    /// Values of a class's keys if the extras have these.
    fn key_values(&self, class: usize, extras: &[f64]) -> Pair {
        let mut right = self.right_of(class);
        for (&extra, value) in self.extras.iter().zip(extras) {
            if let Extra::Own(own, column) = extra
                && own == class
            {
                let rows = self.own_rows(class, column);
                right[0] -= value * rows[0];
                right[1] -= value * rows[1];
            }
        }
        self.inverse[class].map(|row| row[0] * right[0] + row[1] * right[1])
    }

    /// Steps to the optimum of the present objective. Prices are cheap and a look at all classes is not: each class
    /// that offers a gain is asked again before the next look.
    fn run(&mut self) -> Result<(), SolverError> {
        let most = 100 * (self.keys.len() + self.links) as u32 + 1_000;
        let (before, mut still) = (self.steps, 0);
        self.set_prices();
        loop {
            let mut offers = self.offers();
            if offers.is_empty() {
                return Ok(());
            }
            if still > STALLED {
                // the first that gains, whatever it gains
                offers.sort_by_key(|(_, extra)| extra.place());
                offers.truncate(1);
            }
            for (_, offered) in offers {
                let again = match offered {
                    Extra::Own(class, _) => self.best_of(class),
                    Extra::Left(link) | Extra::Lacks(link) => self.left_of(link),
                };
                let Some((_, entering)) = again else { continue };
                let far = self.step(entering)?;
                self.set_prices();
                self.steps += 1;
                still = if far > 0.0 { 0 } else { still + 1 };
                if self.steps - before > most {
                    return Err(self.stuck());
                }
            }
        }
    }

    /// Brings a column into the basis; how far it went.
    fn step(&mut self, entering: Extra) -> Result<f64, SolverError> {
        let (column, _) = self.reduced(entering);
        let falls = self.working.times(&column);
        let values = self.working.times(&self.residual);
        // (how far, size of the pivot, who): the nearest; of equally near ones the largest pivot
        let mut leaving: Option<(f64, f64, Leaving)> = None;
        let mut offer = |value: f64, fall: f64, who: Leaving| {
            if fall > PIVOT {
                let far = value.max(0.0) / fall;
                let nearer = leaving.is_none_or(|(least, size, _)| {
                    far < least - 1e-14 * least.abs() || (far <= least && fall > size)
                });
                if nearer {
                    leaving = Some((far, fall, who));
                }
            }
        };
        let mut changed: SmallVec<[usize; 7]> = SmallVec::new();
        for (at, &extra) in self.extras.iter().enumerate() {
            offer(values[at], falls[at], Leaving::Extra(at));
            if let Extra::Own(class, _) = extra {
                changed.push(class);
            }
        }
        if let Extra::Own(class, _) = entering {
            changed.push(class);
        }
        changed.sort_unstable();
        changed.dedup();
        for &class in &changed {
            let known = self.key_values(class, &values);
            let mut fall = [0.0; 2];
            for (&extra, own) in self.extras.iter().zip(&falls) {
                if let Extra::Own(of, column) = extra
                    && of == class
                {
                    let by_keys = self.by_keys(class, column);
                    fall[0] -= own * by_keys[0];
                    fall[1] -= own * by_keys[1];
                }
            }
            if let Extra::Own(of, column) = entering
                && of == class
            {
                let by_keys = self.by_keys(class, column);
                fall[0] += by_keys[0];
                fall[1] += by_keys[1];
            }
            for place in 0..2 {
                offer(known[place], fall[place], Leaving::Key(class, place));
            }
        }
        let (far, _, leaving) = leaving.ok_or(self.stuck())?;
        match leaving {
            Leaving::Extra(at) => self.extras[at] = entering,
            Leaving::Key(class, place) => self.replace_key(class, place, entering)?,
        }
        self.invert_working()?;
        Ok(far)
    }

    /// Another column of the class becomes the key: the entering one or an extra, which makes room for that.
    fn replace_key(
        &mut self,
        class: usize,
        place: usize,
        entering: Extra,
    ) -> Result<(), SolverError> {
        let mut best: (f64, Option<(usize, usize)>) = (0.0, None);
        let candidates = self.extras.iter().copied().chain([entering]);
        for (at, extra) in candidates.enumerate() {
            if let Extra::Own(of, column) = extra
                && of == class
            {
                let size = self.by_keys(class, column)[place].abs();
                if size > best.0 {
                    best = (size, Some((at, column)));
                }
            }
        }
        let (at, column) = best.1.ok_or(self.stuck())?;
        let mut residual = std::mem::take(&mut self.residual);
        self.add_keys(class, 1.0, &mut residual);
        self.keys[class][place] = column;
        self.invert_keys(class)?;
        self.add_keys(class, -1.0, &mut residual);
        self.residual = residual;
        if at < self.extras.len() {
            self.extras[at] = entering;
        }
        Ok(())
    }

    fn end_first_phase(&mut self) -> Result<(), SolverError> {
        self.set_residual();
        let values = self.working.times(&self.residual);
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

    /// From now on the plan keeps what it reaches.
    fn keep(&mut self, gains: &[f64]) -> Result<(), SolverError> {
        self.kept = self.objective(gains);
        self.right[self.types] = 0.0;
        self.set_residual();
        // its own row is the last; what is left of it is basic since the start
        self.invert_working()?;
        let values = self.working.times(&self.residual);
        let place = self
            .extras
            .iter()
            .position(|extra| *extra == Extra::Left(self.types));
        let total = place.map_or(0.0, |at| values[at]);
        self.right[self.types] = -total * (1.0 - SLACK);
        self.set_residual();
        Ok(())
    }

    fn shares(&mut self) -> Result<Vec<f64>, SolverError> {
        self.set_residual();
        self.invert_working()?;
        let values = self.working.times(&self.residual);
        let mut shares = vec![0.0; self.problem.rates.len()];
        let mut set = |class: usize, column: usize, value: f64| {
            if column < self.types {
                shares[class * self.types + column] = value;
            }
            value >= -1e-7 // as HiGHS does
        };
        let mut is_fine = true;
        for (&extra, &value) in self.extras.iter().zip(&values) {
            is_fine &= match extra {
                Extra::Own(class, column) => set(class, column, value),
                Extra::Left(_) | Extra::Lacks(_) => value >= -1e-7,
            };
        }
        for class in 0..self.keys.len() {
            let own = self.key_values(class, &values);
            for (key, value) in self.keys[class].into_iter().zip(own) {
                is_fine &= set(class, key, value);
            }
        }
        if is_fine {
            Ok(shares)
        } else {
            Err(self.stuck())
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Leaving {
    Extra(usize),
    Key(usize, usize),
}
