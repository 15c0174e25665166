//! Arrival times: all at once, Poisson, or bursts that follow the hour and the weekday.
//!
//! The first arrival is at 0, which is a Monday at 00:00. Times are whole microseconds in ascending order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::tables::{ArrivalProfile, BURST_GAP_S};
use gangline_rng::{Purpose, Stream};

const HOUR_S: f64 = 3600.0;
const WEEK_HOURS: usize = 168;
const WEEK_S: f64 = HOUR_S * WEEK_HOURS as f64;

fn to_micros(seconds: f64) -> u64 {
    libm::floor(seconds * 1e6 + 0.5) as u64
}

/// A clock whose speed is the weight of the current hour of the week. The mean weight is 1.
///
/// If arrivals have a steady rate on this clock, they follow the weights of the hours and the weekdays.
pub(super) struct Clock {
    weights: [f64; WEEK_HOURS],
    /// The reading of the clock at the start of each hour and at the end of the week.
    starts_s: [f64; WEEK_HOURS + 1],
}

impl Clock {
    /// Creates a clock whose speed is the weight of the hour times the weight of the weekday.
    pub(super) fn of_week(profile: &ArrivalProfile) -> Self {
        let hours: f64 = profile.hours.iter().sum();
        let weekdays: f64 = profile.weekdays.iter().sum();
        let scale = WEEK_HOURS as f64 / (hours * weekdays);
        Self::new(|hour| profile.hours[hour % 24] * profile.weekdays[hour / 24] * scale)
    }

    /// Creates a clock that runs at the same speed in every hour.
    pub(super) fn steady() -> Self {
        Self::new(|_| 1.0)
    }

    fn new(weight_of: impl Fn(usize) -> f64) -> Self {
        let weights: [f64; WEEK_HOURS] = std::array::from_fn(weight_of);
        let mut starts_s = [0.0; WEEK_HOURS + 1];
        for hour in 0..WEEK_HOURS {
            starts_s[hour + 1] = starts_s[hour] + HOUR_S * weights[hour];
        }
        Self { weights, starts_s }
    }

    fn weight_at(&self, seconds: f64) -> f64 {
        self.weights[libm::floor(seconds / HOUR_S) as usize % WEEK_HOURS]
    }

    /// Returns the reading of the clock at a time in the trace.
    pub(super) fn weighted_s(&self, seconds: f64) -> f64 {
        let weeks = libm::floor(seconds / WEEK_S);
        let inside_s = seconds - weeks * WEEK_S;
        let hour = (libm::floor(inside_s / HOUR_S) as usize).min(WEEK_HOURS - 1);
        let shown_s = self.starts_s[hour] + (inside_s - hour as f64 * HOUR_S) * self.weights[hour];
        weeks * self.starts_s[WEEK_HOURS] + shown_s
    }

    /// Returns the time in the trace at which the clock reads `weighted_s`.
    fn seconds(&self, weighted_s: f64) -> f64 {
        let full_s = self.starts_s[WEEK_HOURS];
        let weeks = libm::floor(weighted_s / full_s);
        let inside_s = (weighted_s - weeks * full_s).clamp(0.0, full_s);
        let begun = self.starts_s[..WEEK_HOURS].partition_point(|start_s| *start_s <= inside_s);
        let hour = begun - 1;
        // Rounding must not change the order of arrivals, so the time is capped at the end of the hour.
        let into_hour_s = ((inside_s - self.starts_s[hour]) / self.weights[hour]).min(HOUR_S);
        weeks * WEEK_S + hour as f64 * HOUR_S + into_hour_s
    }
}

/// Draws jobs one by one with exponential gaps. The draw for each job has the address `(job, 0, 0)`.
pub(super) fn poisson(seed: u64, jobs: u32, rate_per_h: f64) -> Vec<u64> {
    let stream = Stream::new(seed, Purpose::Arrivals);
    let mean_gap_s = HOUR_S / rate_per_h;
    let mut clock_s = 0.0;
    let mut micros = Vec::with_capacity(jobs as usize);
    for job in 0..jobs {
        if job > 0 {
            clock_s += stream.draw(u64::from(job), 0, 0).exponential(mean_gap_s);
        }
        micros.push(to_micros(clock_s));
    }
    micros
}

/// Draws bursts at the rate `rate_per_h / jobs_per_burst` by thinning, with the hourly weights of the clock.
///
/// A candidate `c` for a burst uses four kinds of draws. `(c, 0, 0)` gives the gap before the burst, and `(c, 0, 1)`
/// decides whether the burst takes place. `(c, 0, 2)` gives the number of jobs in the burst, and `(c, 1, k)` gives the
/// gap before job `k` of the burst.
pub(super) fn diurnal(
    seed: u64,
    jobs: u32,
    rate_per_h: f64,
    profile: &ArrivalProfile,
    clock: &Clock,
) -> Vec<u64> {
    let stream = Stream::new(seed, Purpose::Arrivals);
    let peak = clock
        .weights
        .iter()
        .fold(0.0_f64, |peak, weight| peak.max(*weight));
    let mean_gap_s = HOUR_S * profile.jobs_per_burst / (rate_per_h * peak);
    let mut micros: Vec<u64> = Vec::with_capacity(jobs as usize);
    // Bursts overlap, so jobs of earlier bursts may arrive later than `clock_s`. This heap contains those jobs.
    let mut pending: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut clock_s = 0.0;
    let mut candidate = 0_u64;
    loop {
        let clock_micros = to_micros(clock_s);
        while pending.peek().is_some_and(|first| first.0 <= clock_micros) {
            micros.extend(pending.pop().map(|first| first.0));
        }
        if micros.len() >= jobs as usize {
            micros.truncate(jobs as usize);
            return micros;
        }
        let accepted = stream.draw(candidate, 0, 1).uniform() * peak < clock.weight_at(clock_s);
        if accepted || candidate == 0 {
            micros.push(clock_micros);
            let burst = stream
                .draw(candidate, 0, 2)
                .geometric(profile.jobs_per_burst);
            let mut burst_s = clock_s;
            for k in 1..burst.min(u64::from(jobs)) {
                burst_s += stream.draw(candidate, 1, k as u32).exponential(BURST_GAP_S);
                pending.push(Reverse(to_micros(burst_s)));
            }
        }
        candidate += 1;
        clock_s += stream.draw(candidate, 0, 0).exponential(mean_gap_s);
    }
}

/// Stretches the arrivals on the clock so that the last job arrives at `span_s`.
///
/// Stretching on the clock preserves the weights of hours and weekdays, whereas stretching time in seconds would not.
pub(super) fn stretch(micros: &mut [u64], span_s: f64, clock: &Clock) {
    let Some((last, earlier)) = micros.split_last_mut() else {
        return;
    };
    let factor = clock.weighted_s(span_s) / clock.weighted_s(*last as f64 / 1e6);
    *last = to_micros(span_s);
    for at in earlier {
        if *at > 0 {
            let stretched_s = clock.seconds(clock.weighted_s(*at as f64 / 1e6) * factor);
            *at = to_micros(stretched_s).min(*last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::{HELIOS, PAI, PHILLY};
    use super::*;

    const JOBS: u32 = 100_000;

    fn drawn(seed: u64, jobs: u32, rate_per_h: f64, profile: &ArrivalProfile) -> Vec<u64> {
        diurnal(seed, jobs, rate_per_h, profile, &Clock::of_week(profile))
    }

    #[test]
    fn week_weights_have_mean_1() {
        for profile in [&PHILLY.arrivals, &HELIOS.arrivals, &PAI.arrivals] {
            let mean = Clock::of_week(profile).weights.iter().sum::<f64>() / 168.0;
            assert!((mean - 1.0).abs() < 1e-12);
        }
        let philly = Clock::of_week(&PHILLY.arrivals).weights;
        // Monday 00:00 has weight 1.27 x 0.86, and Sunday 23:00 has weight 1.01 x 0.59.
        assert!((philly[0] / philly[167] - 1.27 * 0.86 / (1.01 * 0.59)).abs() < 1e-12);
    }

    #[test]
    fn the_clock_runs_at_the_weight_of_the_hour() {
        let clock = Clock::new(|hour| [0.5, 1.5][hour % 2]);
        // The cases are half an hour at speed 0.5; an hour at 0.5 and a quarter of an hour at 1.5; and a week plus an
        // hour at 0.5.
        for (seconds, weighted_s) in [
            (0.0, 0.0),
            (1800.0, 900.0),
            (4500.0, 1800.0 + 1350.0),
            (604_800.0 + 3600.0, 604_800.0 + 1800.0),
        ] {
            assert!(
                (clock.weighted_s(seconds) - weighted_s).abs() < 1e-6,
                "{seconds}"
            );
            assert!(
                (clock.seconds(weighted_s) - seconds).abs() < 1e-6,
                "{seconds}"
            );
        }
    }

    #[test]
    fn stretching_keeps_the_weights_of_the_hours() {
        // On the clock, there is an arrival every quarter of an hour. The weights of the hours alternate between 0.5
        // and 1.5.
        let clock = Clock::new(|hour| [0.5, 1.5][hour % 2]);
        let mut micros = [0, 1800, 3600, 4200, 4800, 5400, 6000, 6600, 7200].map(|s| s * 1_000_000);
        // At twice the length there is an arrival every half hour on the clock; at weight 0.5, this takes a whole hour.
        stretch(&mut micros, 14_400.0, &clock);
        let seconds = [0, 3600, 4800, 6000, 7200, 10_800, 12_000, 13_200, 14_400];
        assert_eq!(micros, seconds.map(|s| s * 1_000_000));
        let mut at_once = [0, 0, 0];
        stretch(&mut at_once, 5.0, &clock);
        assert_eq!(at_once, [0, 0, 5_000_000]);
    }

    #[test]
    fn mean_rates_and_short_gaps() {
        for (profile, rate) in [
            (&PHILLY.arrivals, 31.5),
            (&HELIOS.arrivals, 29.0),
            (&PAI.arrivals, 39.3),
        ] {
            let micros = drawn(1, JOBS, rate, profile);
            let hours = micros[micros.len() - 1] as f64 / 3.6e9;
            let measured = f64::from(JOBS - 1) / hours;
            assert!((measured / rate - 1.0).abs() < 0.03, "{measured} {rate}");
            let short = micros
                .windows(2)
                .filter(|pair| pair[1] - pair[0] <= 10_000_000)
                .count();
            // Gaps inside a burst are below 10 s with probability 1 - e^(-10/3); gaps between bursts follow the mean
            // burst rate.
            let inside = 1.0 - 1.0 / profile.jobs_per_burst;
            let between = -libm::expm1(-10.0 * rate / profile.jobs_per_burst / 3600.0);
            let expected = inside * -libm::expm1(-10.0 / 3.0) + (1.0 - inside) * between;
            let share = short as f64 / f64::from(JOBS - 1);
            assert!((share - expected).abs() < 0.05, "{share} {expected}");
        }
        // The published share of short gaps in Philly is 55 %.
        let micros = drawn(2, JOBS, 31.5, &PHILLY.arrivals);
        let short = micros
            .windows(2)
            .filter(|pair| pair[1] - pair[0] <= 10_000_000)
            .count();
        assert!(
            (short as f64 / f64::from(JOBS) - 0.55).abs() < 0.05,
            "{short}"
        );
    }

    #[test]
    fn hours_and_weekdays_follow_their_weights() {
        for (profile, rate) in [
            (&PHILLY.arrivals, 31.5),
            (&HELIOS.arrivals, 29.0),
            (&PAI.arrivals, 39.3),
        ] {
            let micros = drawn(1, JOBS, rate, profile);
            let weeks = micros[micros.len() - 1] / (168 * 3_600_000_000);
            let mut hours = [0.0; 24];
            let mut weekdays = [0.0; 7];
            let mut total = 0.0;
            // Only whole weeks are counted, because an incomplete last week would favour its first days.
            for hour in micros
                .iter()
                .map(|at| at / 3_600_000_000)
                .filter(|hour| *hour < weeks * 168)
            {
                hours[(hour % 24) as usize] += 1.0;
                weekdays[(hour / 24 % 7) as usize] += 1.0;
                total += 1.0;
            }
            for (counted, weights) in [
                (&hours[..], &profile.hours[..]),
                (&weekdays[..], &profile.weekdays[..]),
            ] {
                let sum: f64 = weights.iter().sum();
                for (count, weight) in counted.iter().zip(weights) {
                    let expected = total * weight / sum;
                    assert!((count / expected - 1.0).abs() < 0.10, "{count} {expected}");
                }
            }
        }
    }

    #[test]
    fn poisson_has_its_rate_and_starts_at_0() {
        let micros = poisson(3, JOBS, 120.0);
        assert_eq!(micros[0], 0);
        assert!(micros.is_sorted());
        let rate = f64::from(JOBS - 1) / (micros[micros.len() - 1] as f64 / 3.6e9);
        assert!((rate / 120.0 - 1.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn more_jobs_only_append() {
        let long = drawn(4, 5_000, 31.5, &PHILLY.arrivals);
        assert!(long.is_sorted() && long[0] == 0);
        for jobs in [1, 2, 777, 4_999] {
            let short = drawn(4, jobs, 31.5, &PHILLY.arrivals);
            assert_eq!(short, long[..jobs as usize]);
            let poisson_long = poisson(4, 5_000, 31.5);
            assert_eq!(poisson(4, jobs, 31.5), poisson_long[..jobs as usize]);
        }
    }
}
