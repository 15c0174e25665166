//! Classes of equal jobs: jobs that an objective cannot distinguish share one set of variables.
//!
//! Jobs with bit-identical rows are interchangeable: if each of them gets the average of their shares, the plan remains
//! feasible and equally good. The size of a program therefore depends on how many different jobs there are, not on how
//! many jobs there are.

use super::allocator::Ask;
use super::choose::Pair;
use super::class::{RowPart, group_rows};
use super::facts::Seen;
use gangline_model::GpuTypeId;

/// Facts that distinguish jobs in addition to their rates and gang sizes (and their kinds, if jobs may share GPUs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Weight of each class.
    Weights,
    Remaining,
    /// Ages of jobs, and the times from [`Service`](super::Service).
    Ages,
    Entities,
    /// Each job forms its own class.
    Each,
}

/// Classes of equal jobs. Tables are row-major, `classes x types`. Each class can run on at least one type that has
/// GPUs.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Rates in steps per second; 0 where a class cannot run.
    pub rates: Vec<f64>,
    /// Gang size of the jobs in each class.
    pub gangs: Vec<f64>,
    /// Number of jobs in each class.
    pub members: Vec<f64>,
    /// Weight of each class.
    pub weights: Vec<f64>,
    /// Number of remaining steps, > 0. This column and the next three are empty for programs that do not use them.
    pub remaining: Vec<f64>,
    /// Time in seconds since arrival.
    pub age_s: Vec<f64>,
    /// Time in seconds that an equal split would have taken for the steps done so far; empty if not needed.
    pub lost_s: Vec<f64>,
    /// Time in seconds until each class's deadline, infinite for a class without one; empty if no job has a deadline.
    pub time_left_s: Vec<f64>,
    /// GPU type on which each class runs because of its share.
    pub running: Vec<Option<usize>>,
    /// Number of GPUs of each type.
    pub capacity: Vec<f64>,
    /// Number of jobs among which an equal split divides the GPUs, including jobs that currently cannot run anywhere.
    pub jobs: f64,
    /// Entity of each class; empty if there are no entities.
    pub entities: Vec<u32>,
    /// Weight of each entity.
    pub entity_weights: Vec<f64>,
    /// Kind of each class, numbered from 0; empty unless jobs may share GPUs.
    pub kinds: Vec<u32>,
    /// Number of kinds.
    pub kind_count: usize,
    /// Rates of pairs, as in the request.
    pub pair_rates: Vec<f64>,
    /// The first job of each class, as a row of the request.
    pub first: Vec<usize>,
}

/// The class of each job; `None` if the job cannot run.
pub type ClassOf = Vec<Option<usize>>;

impl Table {
    /// Returns one row for each class of jobs that can run. `left` is the remaining work of each job. `lost_s` is the
    /// result of [`Service`](super::Service) for each job, or empty. `in_order` returns whether an entity gives its
    /// whole weight to one job at a time.
    pub(crate) fn of(
        ask: &Ask,
        left: &[f64],
        lost_s: &[f64],
        told: &[Told],
        in_order: impl Fn(u32) -> bool,
    ) -> (Self, ClassOf) {
        let types = ask.capacity.len();
        let words = |column: &[f64]| column.iter().map(|own| own.to_bits()).collect::<Vec<u64>>();
        let mut columns = vec![(words(&ask.rates), types), (words(&ask.gangs), 1)];
        let mut add = |own: Told, column: &[f64]| {
            if told.contains(&own) && !column.is_empty() {
                columns.push((words(column), 1));
            }
        };
        add(Told::Weights, &ask.weights);
        add(Told::Remaining, left);
        add(Told::Ages, &ask.age_s);
        add(Told::Ages, lost_s);
        if told.contains(&Told::Entities) && !ask.entities.is_empty() {
            let own = ask.entities.iter().copied().map(u64::from).collect();
            columns.push((own, 1));
            let turns = ask.entities.iter().zip(1..);
            let turns = turns.map(|(entity, turn)| if in_order(*entity) { turn } else { 0 });
            columns.push((turns.collect(), 1));
        }
        if told.contains(&Told::Each) {
            columns.push(((0..ask.jobs.len() as u64).collect(), 1));
        }
        let kinds: Vec<u64> = ask.kinds.iter().copied().map(u64::from).collect();
        if !kinds.is_empty() {
            columns.push((kinds, 1));
        }
        let parts = columns.iter().map(|(words, width)| RowPart {
            words,
            width: *width,
        });
        let classes = group_rows(&parts.collect::<Vec<_>>(), ask.jobs.len());
        let mut table = Table {
            capacity: ask.capacity.clone(),
            jobs: ask.jobs.len() as f64,
            entity_weights: ask.entity_weights.clone(),
            kind_count: ask.kind_count,
            pair_rates: ask.pair_rates.clone(),
            ..Table::default()
        };
        let mut place = vec![None; classes.first.len()];
        for (class, (&first, &count)) in classes.first.iter().zip(&classes.count).enumerate() {
            let first = first as usize;
            let rates = &ask.rates[first * types..(first + 1) * types];
            let mut pairs = rates.iter().zip(&ask.capacity);
            if !pairs.any(|(rate, gpus)| *rate > 0.0 && *gpus > 0.0) {
                continue;
            }
            place[class] = Some(table.gangs.len());
            table.rates.extend_from_slice(rates);
            table.gangs.push(ask.gangs[first]);
            table.members.push(count as f64);
            table.weights.push(ask.weights[first]);
            table.remaining.extend(left.get(first));
            table.age_s.extend(ask.age_s.get(first));
            table.lost_s.extend(lost_s.get(first));
            table.time_left_s.extend(ask.time_left_s.get(first));
            let running = ask.running.get(first);
            table
                .running
                .extend(running.map(|own| own.map(GpuTypeId::index)));
            table.entities.extend(ask.entities.get(first));
            table.kinds.extend(ask.kinds.get(first));
            table.first.push(first);
        }
        let row_of = classes.of.iter().map(|&class| place[class as usize]);
        let row_of = row_of.collect();
        (table, row_of)
    }

    /// Returns, for each class, the inverse of its rate averaged over all GPUs.
    pub(crate) fn fair(&self) -> Vec<f64> {
        let gpus: f64 = self.capacity.iter().sum();
        let rows = self.rates.chunks_exact(self.capacity.len());
        let totals = rows.map(|row| {
            row.iter()
                .zip(&self.capacity)
                .map(|(a, w)| a * w)
                .sum::<f64>()
        });
        totals.map(|total| 1.0 / (total / gpus)).collect()
    }

    /// Returns a table in which each class has its rate from `rates` on all types on which it can run.
    pub(crate) fn flat(&self, rates: &[f64]) -> Vec<f64> {
        let types = self.capacity.len();
        let cells = self.rates.iter().enumerate();
        cells
            .map(|(at, rate)| if *rate > 0.0 { rates[at / types] } else { 0.0 })
            .collect()
    }

    /// Returns the rates that an objective uses.
    pub(crate) fn seen(&self, seen: Seen) -> Vec<f64> {
        match seen {
            Seen::Own => self.rates.clone(),
            Seen::Mean => {
                let mean: Vec<f64> = self.fair().iter().map(|fair| 1.0 / fair).collect();
                self.flat(&mean)
            }
            Seen::Reference(kind) => {
                let rows = self.rates.chunks_exact(self.capacity.len());
                self.flat(&rows.map(|row| row[kind]).collect::<Vec<f64>>())
            }
        }
    }

    /// Returns pairs (class, time in seconds until its deadline), for the deadlines that can still be met.
    pub(crate) fn deadlines(&self) -> Vec<(usize, f64)> {
        let each = self.time_left_s.iter().copied().enumerate();
        each.filter(|(_, left)| *left > 0.0 && left.is_finite())
            .collect()
    }

    /// Returns the pairs of classes that gain from sharing GPUs; their rates are in the same unit as `seen`. Given a
    /// class and a type, `counts` returns the value of one step per second in each of the two objectives. The function
    /// omits pairs whose relative speeds add up to at most 1, because taking turns is at least as good.
    pub(crate) fn pairs(
        &self,
        seen: &[f64],
        counts: impl Fn(usize, usize) -> [f64; 2],
    ) -> Vec<Pair> {
        let (types, classes) = (self.capacity.len(), self.kinds.len());
        let beside = |one: usize, other: usize| {
            let row = self.kinds[one] as usize * self.kind_count + self.kinds[other] as usize;
            &self.pair_rates[row * types..(row + 1) * types]
        };
        let alone = |class: usize, gpu_type: usize| self.rates[class * types + gpu_type];
        let mut pairs = Vec::new();
        for one in 0..classes {
            for other in one..classes {
                let is_two = one != other || self.members[one] >= 2.0;
                if !is_two || self.gangs[one].to_bits() != self.gangs[other].to_bits() {
                    continue;
                }
                let (ours, theirs) = (beside(one, other), beside(other, one));
                for gpu_type in (0..types).filter(|&own| self.capacity[own] > 0.0) {
                    let classes = [one, other];
                    let rates = [ours[gpu_type], theirs[gpu_type]];
                    let alone = classes.map(|class| alone(class, gpu_type));
                    let is_usable = rates.iter().chain(&alone).all(|rate| *rate > 0.0);
                    if !is_usable || rates[0] / alone[0] + rates[1] / alone[1] <= 1.0 {
                        continue;
                    }
                    let seen = classes.map(|class| seen[class * types + gpu_type]);
                    let as_seen = |at: usize| {
                        if seen[at].to_bits() == alone[at].to_bits() {
                            rates[at]
                        } else {
                            rates[at] / alone[at] * seen[at]
                        }
                    };
                    let rates = [as_seen(0), as_seen(1)];
                    let [a, b] = classes.map(|class| counts(class, gpu_type));
                    pairs.push(Pair {
                        classes,
                        gpu_type,
                        rates,
                        gain: a[0] * rates[0] + b[0] * rates[1],
                        then: a[1] * rates[0] + b[1] * rates[1],
                    });
                }
            }
        }
        pairs
    }
}
