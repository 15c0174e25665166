//! The order in which the public simulator goes through the GPU types: by name, or shuffled by `CPython`'s random
//! generator each time jobs are chosen.

use gangline_model::{GpuType, GpuTypeId};
use rand_mt::Mt;

/// The type names that the public simulator knows, in its order. Other types follow by index.
const KNOWN: [&str; 3] = ["v100", "p100", "k80"];
/// Number that is added to the run's seed for the shuffle. The value comes from the public code.
const SEED_OF_SHUFFLE: u64 = 5;

/// GPU types in order, and the generator that shuffles them.
#[derive(Clone, Debug, Default)]
pub(super) struct TypeOrder {
    types: Vec<GpuTypeId>,
    random: Option<Mt>,
}

impl TypeOrder {
    /// Creates the order of a cluster's GPU types. With a seed, the order is shuffled each time jobs are chosen.
    pub(super) fn new(gpu_types: &[GpuType], seed: Option<u64>) -> Self {
        let rank = |name: &str| {
            let known = KNOWN.iter().position(|k| k.eq_ignore_ascii_case(name));
            known.unwrap_or(KNOWN.len())
        };
        let mut types: Vec<GpuTypeId> = (0..gpu_types.len()).map(GpuTypeId::new).collect();
        types.sort_by_key(|id| (rank(&gpu_types[id.index()].name), *id));
        Self {
            types,
            random: seed.map(|seed| python_random(seed.wrapping_add(SEED_OF_SHUFFLE))),
        }
    }

    /// Returns the order for the next choice.
    pub(super) fn next(&mut self) -> Vec<GpuTypeId> {
        let mut types = self.types.clone();
        if let Some(random) = &mut self.random {
            shuffle(&mut types, random);
        }
        types
    }
}

/// Returns the same generator as `random.Random(seed)` in `CPython`, which is seeded with the 32-bit words of the seed,
/// lowest first.
fn python_random(seed: u64) -> Mt {
    let (low, high) = (seed as u32, (seed >> 32) as u32);
    let words = if high == 0 {
        vec![low]
    } else {
        vec![low, high]
    };
    Mt::new_with_key(words)
}

/// Shuffles like `Random.shuffle` in `CPython`: from the last item backwards, each item is swapped with a random item
/// at or before its position.
fn shuffle<T>(items: &mut [T], random: &mut Mt) {
    for at in (1..items.len()).rev() {
        items.swap(at, below(at as u32 + 1, random) as usize);
    }
}

/// Returns a random number below `n`. Draws as many random bits as `n` has, and repeats the draw until the result is
/// below `n`.
fn below(n: u32, random: &mut Mt) -> u32 {
    let spare = n.leading_zeros();
    loop {
        let drawn = random.next_u32() >> spare;
        if drawn < n {
            return drawn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<GpuType> {
        names
            .iter()
            .map(|&name| GpuType {
                name: name.to_owned(),
                memory_bytes: u64::MAX,
                price_per_hour: 0.0,
                speed: 1.0,
            })
            .collect()
    }

    fn drawn(seed: u64, times: usize) -> Vec<Vec<u32>> {
        let mut order = TypeOrder::new(&named(&["k80", "p100", "v100"]), Some(seed));
        let next = |_| order.next().iter().map(|id| id.0).collect();
        (0..times).map(next).collect()
    }

    #[test]
    fn known_names_come_in_the_public_order() {
        let ids = |names: &[&str]| TypeOrder::new(&named(names), None).next();
        assert_eq!(ids(&["k80", "p100", "v100"]), [2, 1, 0].map(GpuTypeId));
        assert_eq!(ids(&["A100", "K80", "V100"]), [2, 1, 0].map(GpuTypeId));
    }

    /// `CPython` 3.11 printed the expected output for `r = random.Random(seed + 5)` and then repeatedly `x = [2, 1, 0];
    /// r.shuffle(x)`.
    #[test]
    fn shuffles_are_those_of_python() {
        let of_5 = [
            [2, 1, 0],
            [2, 1, 0],
            [1, 2, 0],
            [0, 2, 1],
            [1, 2, 0],
            [1, 0, 2],
        ];
        assert_eq!(drawn(0, 6), of_5);
        let of_two_words = [
            [2, 1, 0],
            [1, 2, 0],
            [1, 0, 2],
            [1, 0, 2],
            [0, 2, 1],
            [1, 0, 2],
        ];
        assert_eq!(drawn((1 << 32) + 7, 6), of_two_words);
    }
}
