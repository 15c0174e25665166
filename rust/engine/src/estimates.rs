//! Estimated durations. An option of the run makes policies see these instead of the true durations.

use gangline_model::{JobId, JobTable, SimSpan, SimTime};
use gangline_rng::{Purpose, Stream};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Source of the durations that policies see.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Estimates {
    /// True durations.
    #[default]
    Exact,
    /// True durations, each multiplied by a factor exp(N(0, sigma)) that is drawn once per job.
    Noise(f64),
    /// One duration for each job, given by the user.
    Given(Vec<SimSpan>),
    /// For each job, a statistic (such as the mean) of the durations of jobs that finished before its arrival.
    History(History),
}

/// Estimates the duration of a job from jobs that finished before its arrival. The estimate uses the first of these
/// groups that is not empty: jobs of the same user and model (only if `by_model` is set), jobs of the same user, all
/// jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Whether jobs of the same user and model are preferred to the user's other jobs.
    pub by_model: bool,
    /// The statistic of the durations of these jobs.
    pub statistic: Statistic,
    /// Number of most recently finished jobs that the statistic includes; `None` means all finished jobs.
    pub last: Option<usize>,
    /// Estimate for a job that arrives before any job has finished.
    pub default: SimSpan,
}

/// A statistic of past durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The mean, to the nearest nanosecond.
    Mean,
    /// A percentile: the smallest duration that at least this percentage (1 to 100) of the durations do not exceed.
    Percentile(u32),
}

impl Estimates {
    /// Returns whether policies see exact durations.
    #[inline]
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Exact)
    }

    /// Returns a description of the first invalid value.
    pub(crate) fn problem(&self, jobs: usize) -> Option<String> {
        match self {
            Self::Exact => None,
            Self::Noise(sigma) => (!(sigma.is_finite() && *sigma > 0.0))
                .then(|| format!("the noise must be finite and > 0, got {sigma}")),
            Self::Given(totals) if totals.len() != jobs => Some(format!(
                "{} durations are given for {jobs} jobs",
                totals.len()
            )),
            Self::Given(totals) => (totals.iter().any(|total| total.0 < 1))
                .then(|| "a duration must be at least 1 ns".to_owned()),
            Self::History(history) => {
                let percent = match history.statistic {
                    Statistic::Mean => 1,
                    Statistic::Percentile(percent) => percent,
                };
                let is_bad = !(1..=100).contains(&percent)
                    || history.last == Some(0)
                    || history.default.0 < 1;
                is_bad.then(|| {
                    "the percentile must be from 1 to 100, the number of jobs at least 1, and the default > 0"
                        .to_owned()
                })
            }
        }
    }
}

/// The estimate for one job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimate {
    /// The true duration.
    Exact,
    /// The true duration times a factor.
    Times(f64),
    /// The true duration plus this span, which is also added to the remaining duration. A job that runs longer than
    /// its estimate is expected to end in the next nanosecond.
    Plus(SimSpan),
}

impl Estimate {
    /// Returns the estimate for a true isolated time, rounded to the nearest nanosecond; halves are rounded up.
    #[inline]
    pub fn of(self, truth: SimSpan) -> SimSpan {
        match self {
            Self::Exact => truth,
            // `as` saturates at a value beyond the end of simulated time.
            Self::Times(factor) => SimSpan((truth.0 as f64 * factor).round() as i64),
            Self::Plus(more) => SimSpan(truth.0.saturating_add(more.0).max(1)),
        }
    }

    /// Returns the ratio of the estimate to the true time, given the remaining isolated time of the job. Times at rates
    /// other than the best rate are multiplied by this ratio.
    #[inline]
    pub fn factor(self, left: SimSpan) -> f64 {
        match self {
            Self::Exact => 1.0,
            Self::Times(factor) => factor,
            Self::Plus(_) => {
                let left = left.max(SimSpan(1));
                self.of(left).0 as f64 / left.0 as f64
            }
        }
    }
}

/// Returns the factor by which log-normal noise multiplies the duration of a job.
pub fn noise(seed: u64, job: JobId, sigma: f64) -> f64 {
    let draw = Stream::new(seed, Purpose::Estimates).draw(u64::from(job.0), 0, 0);
    draw.log_normal(sigma)
}

/// Durations of finished jobs, and the estimates for jobs that have arrived.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    rule: History,
    /// Estimate for each job that has arrived.
    told: Vec<SimSpan>,
    /// Jobs that finished at the current instant. They do not count towards the estimate for a job that arrives at the
    /// same instant.
    fresh: Vec<(JobId, SimSpan)>,
    fresh_at: SimTime,
    of_user_and_model: FxHashMap<(u32, u32), Book>,
    of_user: FxHashMap<u32, Book>,
    of_all: Book,
}

const NO_LABEL: u32 = u32::MAX;

impl Past {
    pub(crate) fn new(rule: History) -> Self {
        Self {
            rule,
            told: Vec::new(),
            fresh: Vec::new(),
            fresh_at: SimTime::ZERO,
            of_user_and_model: FxHashMap::default(),
            of_user: FxHashMap::default(),
            of_all: Book::default(),
        }
    }

    #[inline]
    pub(crate) fn told(&self, job: JobId) -> Option<SimSpan> {
        self.told.get(job.index()).copied()
    }

    /// Records that a job has finished, together with its isolated duration.
    pub(crate) fn note_finish(&mut self, jobs: &JobTable, job: JobId, now: SimTime, took: SimSpan) {
        self.settle(jobs, now);
        self.fresh_at = now;
        self.fresh.push((job, took));
    }

    /// Records the arrival of a job. Jobs with numbers between the previously arrived job and this one were left out of
    /// the run; their estimates are never read.
    pub(crate) fn note_arrival(&mut self, jobs: &JobTable, job: JobId, now: SimTime) {
        self.settle(jobs, now);
        let (user, model) = labels(jobs, job);
        let own = self.rule.by_model.then_some(&self.of_user_and_model);
        let books = [
            own.and_then(|books| books.get(&(user, model))),
            self.of_user.get(&user),
            Some(&self.of_all),
        ];
        let mut found = books
            .into_iter()
            .flatten()
            .filter_map(|book| book.value(self.rule));
        let total = found.next().unwrap_or(self.rule.default).max(SimSpan(1));
        self.told.resize(job.index(), SimSpan(1));
        self.told.push(total);
    }

    /// Adds the jobs that finished before an instant, in the order of their numbers.
    fn settle(&mut self, jobs: &JobTable, now: SimTime) {
        if self.fresh_at >= now {
            return;
        }
        self.fresh.sort_unstable_by_key(|one| one.0);
        for (job, took) in std::mem::take(&mut self.fresh) {
            let (user, model) = labels(jobs, job);
            if self.rule.by_model {
                let book = self.of_user_and_model.entry((user, model)).or_default();
                book.add(self.rule, took);
            }
            self.of_user.entry(user).or_default().add(self.rule, took);
            self.of_all.add(self.rule, took);
        }
    }
}

fn labels(jobs: &JobTable, job: JobId) -> (u32, u32) {
    let user = jobs.columns().labels.user.codes.as_ref();
    (
        user.map_or(NO_LABEL, |codes| codes[job.index()]),
        jobs.model(job).unwrap_or(NO_LABEL),
    )
}

/// Durations of a group of jobs, stored in the form that the statistic needs. Adding a duration costs O(log n). The
/// mean of the last k durations costs O(1), and their percentile costs O(k log k).
#[derive(Clone, Debug, Default)]
struct Book {
    count: i128,
    sum: i128,
    /// The most recent durations, if the statistic ignores older ones.
    recent: VecDeque<i64>,
    /// If the statistic is a percentile of all durations, `low` contains the durations up to the percentile, and `high`
    /// contains those above it.
    low: BinaryHeap<i64>,
    high: BinaryHeap<Reverse<i64>>,
}

impl Book {
    fn add(&mut self, rule: History, took: SimSpan) {
        self.count += 1;
        self.sum += i128::from(took.0);
        if let Some(last) = rule.last {
            self.recent.push_back(took.0);
            if self.recent.len() > last
                && let Some(oldest) = self.recent.pop_front()
            {
                self.count -= 1;
                self.sum -= i128::from(oldest);
            }
        } else if let Statistic::Percentile(percent) = rule.statistic {
            self.high.push(Reverse(took.0));
            if let Some(Reverse(least)) = self.high.pop() {
                self.low.push(least);
            }
            let rank = rank(percent, self.low.len() + self.high.len());
            while self.low.len() > rank
                && let Some(most) = self.low.pop()
            {
                self.high.push(Reverse(most));
            }
            while self.low.len() < rank
                && let Some(Reverse(least)) = self.high.pop()
            {
                self.low.push(least);
            }
        }
    }

    fn value(&self, rule: History) -> Option<SimSpan> {
        if self.count == 0 {
            return None;
        }
        let value = match (rule.statistic, rule.last) {
            (Statistic::Mean, _) => ((2 * self.sum + self.count) / (2 * self.count)) as i64,
            (Statistic::Percentile(_), None) => *self.low.peek()?,
            (Statistic::Percentile(percent), Some(_)) => {
                let mut recent: Vec<i64> = self.recent.iter().copied().collect();
                recent.sort_unstable();
                recent[rank(percent, recent.len()) - 1]
            }
        };
        Some(SimSpan(value))
    }
}

/// Returns the number of durations, at least 1, that a percentile of `count` durations covers.
fn rank(percent: u32, count: usize) -> usize {
    (percent as usize * count).div_ceil(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(rule: History, spans: &[i64]) -> Book {
        let mut book = Book::default();
        for &span in spans {
            book.add(rule, SimSpan(span));
        }
        book
    }

    fn rule(statistic: Statistic, last: Option<usize>) -> History {
        History {
            by_model: false,
            statistic,
            last,
            default: SimSpan(7),
        }
    }

    #[test]
    fn means_round_to_the_nearest() {
        let all = rule(Statistic::Mean, None);
        assert_eq!(book(all, &[1, 2]).value(all), Some(SimSpan(2))); // The mean 1.5 is rounded up.
        assert_eq!(book(all, &[1, 1, 2]).value(all), Some(SimSpan(1)));
        let two = rule(Statistic::Mean, Some(2));
        // The mean of the last two durations is 2.5.
        assert_eq!(book(two, &[100, 1, 4]).value(two), Some(SimSpan(3)));
        assert_eq!(book(all, &[]).value(all), None);
    }

    #[test]
    fn percentiles_equal_those_of_a_sorted_list() {
        let spans = [5, 3, 9, 9, 1, 12, 4, 4, 8, 2, 30, 7];
        for percent in [1, 10, 50, 75, 99, 100] {
            for count in 1..=spans.len() {
                for last in [None, Some(1), Some(3), Some(40)] {
                    let how = rule(Statistic::Percentile(percent), last);
                    let given = &spans[..count];
                    let from = count.saturating_sub(last.unwrap_or(count));
                    let mut sorted = given[from..].to_vec();
                    sorted.sort_unstable();
                    // The expected value is found by counting: it is the smallest duration that enough durations do not
                    // exceed.
                    let covers = |span: &&i64| {
                        let below = sorted.iter().filter(|one| one <= span).count();
                        below * 100 >= percent as usize * sorted.len()
                    };
                    let expected = *sorted.iter().find(covers).expect("the largest covers all");
                    assert_eq!(book(how, given).value(how), Some(SimSpan(expected)));
                }
            }
        }
    }

    #[test]
    fn a_job_that_outlives_its_estimate_ends_next() {
        let told = Estimate::Plus(SimSpan(-40));
        assert_eq!(told.of(SimSpan(100)), SimSpan(60));
        assert_eq!(told.of(SimSpan(40)), SimSpan(1));
        assert!((told.factor(SimSpan(100)) - 0.6).abs() < f64::EPSILON);
    }
}
