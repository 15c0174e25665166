//! Arrival times: all at once, Poisson, or bursts that follow the hour and the weekday.
//!
//! The first arrival is at 0, which is a Monday at 00:00. Times are whole microseconds, ordered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::tables::{ArrivalProfile, BURST_GAP_S};
use gangline_rng::{Purpose, Stream};

/// Simulated time ends near 9.22e9 s (64-bit nanoseconds); this leaves room for the run itself.
pub(super) const LAST_ARRIVAL_S: f64 = 4.0e9;
const HOUR_S: f64 = 3600.0;
const WEEK_HOURS: usize = 168;

/// A clock that ran past [`LAST_ARRIVAL_S`].
#[derive(Debug)]
pub(super) struct TooLate;

fn to_micros(seconds: f64) -> Result<u64, TooLate> {
    if seconds > LAST_ARRIVAL_S {
        return Err(TooLate);
    }
    Ok(libm::floor(seconds * 1e6 + 0.5) as u64)
}

/// One job after another, exponential gaps. Draw: `(job, 0, 0)`.
pub(super) fn poisson(seed: u64, jobs: u32, rate_per_h: f64) -> Result<Vec<u64>, TooLate> {
    let stream = Stream::new(seed, Purpose::Arrivals);
    let mean_gap_s = HOUR_S / rate_per_h;
    let mut clock_s = 0.0;
    let mut micros = Vec::with_capacity(jobs as usize);
    for job in 0..jobs {
        if job > 0 {
            clock_s += stream.draw(u64::from(job), 0, 0).exponential(mean_gap_s);
        }
        micros.push(to_micros(clock_s)?);
    }
    Ok(micros)
}

/// Bursts at `rate_per_h / jobs_per_burst` by thinning, with the weights of the profile.
///
/// Draws of candidate `c`: gap before it `(c, 0, 0)`, acceptance `(c, 0, 1)`, jobs of the burst
/// `(c, 0, 2)`, gap before its job `k` `(c, 1, k)`.
pub(super) fn diurnal(
    seed: u64,
    jobs: u32,
    rate_per_h: f64,
    profile: &ArrivalProfile,
) -> Result<Vec<u64>, TooLate> {
    let stream = Stream::new(seed, Purpose::Arrivals);
    let week = week_weights(profile);
    let peak = week.iter().fold(0.0_f64, |peak, weight| peak.max(*weight));
    let mean_gap_s = HOUR_S * profile.jobs_per_burst / (rate_per_h * peak);
    let mut micros: Vec<u64> = Vec::with_capacity(jobs as usize);
    // Jobs of earlier bursts that come after the clock: bursts overlap.
    let mut pending: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut clock_s = 0.0;
    let mut candidate = 0_u64;
    loop {
        let clock_micros = to_micros(clock_s)?;
        while pending.peek().is_some_and(|first| first.0 <= clock_micros) {
            micros.extend(pending.pop().map(|first| first.0));
        }
        if micros.len() >= jobs as usize {
            micros.truncate(jobs as usize);
            return Ok(micros);
        }
        let accepted = stream.draw(candidate, 0, 1).uniform() * peak < week[hour_of_week(clock_s)];
        if accepted || candidate == 0 {
            micros.push(clock_micros);
            let burst = stream
                .draw(candidate, 0, 2)
                .geometric(profile.jobs_per_burst);
            let mut burst_s = clock_s;
            for k in 1..burst.min(u64::from(jobs)) {
                burst_s += stream.draw(candidate, 1, k as u32).exponential(BURST_GAP_S);
                pending.push(Reverse(to_micros(burst_s)?));
            }
        }
        candidate += 1;
        clock_s += stream.draw(candidate, 0, 0).exponential(mean_gap_s);
    }
}

fn hour_of_week(clock_s: f64) -> usize {
    libm::floor(clock_s / HOUR_S) as usize % WEEK_HOURS
}

/// Hour weight times weekday weight, with mean 1 over the week.
fn week_weights(profile: &ArrivalProfile) -> [f64; WEEK_HOURS] {
    let hours: f64 = profile.hours.iter().sum();
    let weekdays: f64 = profile.weekdays.iter().sum();
    let scale = WEEK_HOURS as f64 / (hours * weekdays);
    std::array::from_fn(|hour| profile.hours[hour % 24] * profile.weekdays[hour / 24] * scale)
}

#[cfg(test)]
mod tests {
    use super::super::tables::{HELIOS, PAI, PHILLY};
    use super::*;

    const JOBS: u32 = 100_000;

    #[test]
    fn week_weights_have_mean_1() {
        for profile in [&PHILLY.arrivals, &HELIOS.arrivals, &PAI.arrivals] {
            let mean = week_weights(profile).iter().sum::<f64>() / 168.0;
            assert!((mean - 1.0).abs() < 1e-12);
        }
        let philly = week_weights(&PHILLY.arrivals);
        // Monday 00:00 against Sunday 23:00: 1.27 x .86 against 1.01 x .59
        assert!((philly[0] / philly[167] - 1.27 * 0.86 / (1.01 * 0.59)).abs() < 1e-12);
    }

    #[test]
    fn mean_rates_and_short_gaps() {
        for (profile, rate) in [
            (&PHILLY.arrivals, 31.5),
            (&HELIOS.arrivals, 29.0),
            (&PAI.arrivals, 39.3),
        ] {
            let micros = diurnal(1, JOBS, rate, profile).expect("a few months");
            let hours = micros[micros.len() - 1] as f64 / 3.6e9;
            let measured = f64::from(JOBS - 1) / hours;
            assert!((measured / rate - 1.0).abs() < 0.03, "{measured} {rate}");
            let short = micros
                .windows(2)
                .filter(|pair| pair[1] - pair[0] <= 10_000_000)
                .count();
            // Inside a burst 1 - e^(-10/3); between bursts by the mean burst rate.
            let inside = 1.0 - 1.0 / profile.jobs_per_burst;
            let between = -libm::expm1(-10.0 * rate / profile.jobs_per_burst / 3600.0);
            let expected = inside * -libm::expm1(-10.0 / 3.0) + (1.0 - inside) * between;
            let share = short as f64 / f64::from(JOBS - 1);
            assert!((share - expected).abs() < 0.05, "{share} {expected}");
        }
        // The published number of Philly itself: 55 %.
        let micros = diurnal(2, JOBS, 31.5, &PHILLY.arrivals).expect("a few months");
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
            let micros = diurnal(1, JOBS, rate, profile).expect("a few months");
            let weeks = micros[micros.len() - 1] / (168 * 3_600_000_000);
            let mut hours = [0.0; 24];
            let mut weekdays = [0.0; 7];
            let mut total = 0.0;
            // Whole weeks only: the last, broken one would favour its first days.
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
        let micros = poisson(3, JOBS, 120.0).expect("35 days");
        assert_eq!(micros[0], 0);
        assert!(micros.is_sorted());
        let rate = f64::from(JOBS - 1) / (micros[micros.len() - 1] as f64 / 3.6e9);
        assert!((rate / 120.0 - 1.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn more_jobs_only_append() {
        let long = diurnal(4, 5_000, 31.5, &PHILLY.arrivals).expect("a week");
        assert!(long.is_sorted() && long[0] == 0);
        for jobs in [1, 2, 777, 4_999] {
            let short = diurnal(4, jobs, 31.5, &PHILLY.arrivals).expect("a week");
            assert_eq!(short, long[..jobs as usize]);
            let poisson_long = poisson(4, 5_000, 31.5).expect("a week");
            assert_eq!(
                poisson(4, jobs, 31.5).expect("a week"),
                poisson_long[..jobs as usize]
            );
        }
    }

    #[test]
    fn a_clock_beyond_the_range_is_an_error() {
        assert!(poisson(1, 100, 1e-6).is_err());
        assert!(diurnal(1, 100, 1e-6, &PAI.arrivals).is_err());
    }
}
