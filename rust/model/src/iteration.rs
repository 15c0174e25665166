//! The iteration time of a gang: compute passes over sub-batches, and one synchronisation that overlaps with the last
//! pass.

/// Returns the time of two overlapping activities. With exponent 1, the activities do not overlap; the larger the
/// exponent, the more they overlap. With an infinite exponent, only the longer activity counts.
///
/// The result is the p-norm of the two times, which must be >= 0, for p >= 1. Both times are first divided by the
/// longer one, so that no power overflows.
///
/// # Examples
/// ```
/// use gangline_model::overlapped;
/// assert_eq!(overlapped(3.0, 4.0, 1.0), 7.0);
/// assert_eq!(overlapped(3.0, 4.0, 2.0), 5.0);
/// assert_eq!(overlapped(3.0, 0.0, 7.0), 3.0);
/// ```
pub fn overlapped(one_s: f64, other_s: f64, p: f64) -> f64 {
    let (longer, shorter) = (one_s.max(other_s), one_s.min(other_s));
    if shorter == 0.0 {
        return longer;
    }
    longer * libm::pow(1.0 + libm::pow(shorter / longer, p), 1.0 / p)
}

/// Returns the time in seconds of an iteration with `passes` passes; the last pass overlaps with the synchronisation.
///
/// # Examples
/// ```
/// use gangline_model::accumulated;
/// assert_eq!(accumulated(3, 2.0, 1.0, 1.0), 7.0);
/// ```
pub fn accumulated(passes: u32, compute_s: f64, sync_s: f64, p: f64) -> f64 {
    f64::from(passes.max(1) - 1) * compute_s + overlapped(compute_s, sync_s, p)
}

/// Times of one model on one GPU type, in the form that Pollux uses (arXiv 2008.12260). All times are in seconds and >=
/// 0, and `gamma` is >= 1.
///
/// # Examples
/// ```
/// use gangline_model::StepFit;
/// let cifar10 = StepFit {
///     pass_s: [0.01733, 0.0007018], servers_s: [0.1211, 0.002392], server_s: [0.03168, 0.0009819], gamma: 1.999,
/// };
/// let step_s = cifar10.step_s(4, 1, 128, 0);
/// assert!((512.0 / step_s - 4558.1552).abs() < 1e-4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepFit {
    /// Time of a pass: a constant part, and a part per sample.
    pub pass_s: [f64; 2],
    /// Time of a synchronisation across several servers: a constant part, and a part per GPU beyond two.
    pub servers_s: [f64; 2],
    /// Time of a synchronisation within one server: a constant part, and a part per GPU beyond two.
    pub server_s: [f64; 2],
    /// Exponent of the overlap between the synchronisation and the last pass.
    pub gamma: f64,
}

impl StepFit {
    /// Returns the time in seconds of a pass over this number of samples per GPU.
    pub fn pass(&self, samples: u32) -> f64 {
        self.pass_s[0] + self.pass_s[1] * f64::from(samples)
    }

    /// Returns the time in seconds of a synchronisation across the given numbers of GPUs and servers; 0 for one GPU.
    pub fn sync(&self, gpus: u32, servers: u32) -> f64 {
        let [all, per_gpu] = match (gpus, servers) {
            (..=1, _) => return 0.0,
            (_, ..=1) => self.server_s,
            _ => self.servers_s,
        };
        all + per_gpu * f64::from(gpus - 2)
    }

    /// Returns the time in seconds of an iteration with `samples` samples per GPU and pass, and `extra_passes` passes
    /// beyond the first.
    pub fn step_s(&self, gpus: u32, servers: u32, samples: u32, extra_passes: u32) -> f64 {
        let sync_s = self.sync(gpus, servers);
        accumulated(extra_passes + 1, self.pass(samples), sync_s, self.gamma)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIFAR10: StepFit = StepFit {
        pass_s: [0.017_33, 0.000_701_8],
        servers_s: [0.1211, 0.002_392],
        server_s: [0.031_68, 0.000_981_9],
        gamma: 1.999,
    };

    #[test]
    fn steps_of_a_public_fit() {
        for ((servers, gpus, samples, extra), step_s, samples_per_s) in [
            ((1, 1, 128, 0), 0.107_160, 1194.4711),
            ((1, 4, 128, 0), 0.112_326, 4558.1552),
            ((2, 8, 128, 0), 0.172_744, 5927.8417),
            ((1, 1, 128, 1), 0.214_321, 1194.4711),
        ] {
            let found = CIFAR10.step_s(gpus, servers, samples, extra);
            assert!((found - step_s).abs() < 5e-7, "{found}");
            let batch = f64::from(gpus * samples * (extra + 1));
            assert!((batch / found - samples_per_s).abs() < 5e-5);
        }
    }

    #[test]
    fn sub_batches_of_a_hand_computed_model() {
        for (passes, iteration_s) in [
            (1, 0.465_188),
            (2, 0.588_024),
            (4, 0.809_072),
            (8, 1.224_131),
        ] {
            let compute_s = 0.1 + 0.01 * f64::from(32 / passes);
            let found = accumulated(passes, compute_s, 0.2, 2.0);
            assert!((found - iteration_s).abs() < 5e-7, "{found}");
        }
    }

    #[test]
    fn no_power_overflows() {
        assert!((overlapped(1e200, 1e200, 1e6) - 1e200).abs() < 1e195);
        assert!((overlapped(1e200, 1e-200, 10.0) - 1e200).abs() < 1e190);
        assert!(
            (overlapped(1.0, 2.0, 1e9) - 2.0).abs() < 1e-6,
            "the longer one decides"
        );
        assert!(overlapped(0.0, 0.0, 2.0).abs() < 1e-300);
    }

    #[test]
    fn one_gpu_does_not_synchronise_and_more_take_longer() {
        assert!(CIFAR10.sync(1, 1).abs() < 1e-300);
        assert!((CIFAR10.sync(2, 1) - 0.031_68).abs() < 1e-15);
        assert!(CIFAR10.sync(3, 1) > CIFAR10.sync(2, 1));
        assert!(CIFAR10.sync(2, 2) > CIFAR10.sync(2, 1));
    }
}
