//! Columns of names.

use super::spec::SynthSpec;
use gangline_rng::{Purpose, Stream, WeightTable};

const ZIPF_EXPONENT: f64 = 1.2;

/// A column of names, stored as one code per job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SynthCodes {
    /// Index into `names` for each job; -1 means that the job has no name.
    pub codes: Vec<i32>,
    /// The names.
    pub names: Vec<String>,
}

/// Draws a column whose names have Zipf frequencies. The draw for each job has the address `(job, 0, 0)`.
pub(super) fn draw_zipf(
    spec: &SynthSpec,
    purpose: Purpose,
    items: u32,
    word: &str,
) -> Option<SynthCodes> {
    let table = WeightTable::zipf(items, ZIPF_EXPONENT)?;
    let stream = Stream::new(spec.seed, purpose);
    let draw = |job| stream.draw(u64::from(job), 0, 0).index(&table) as i32;
    Some(SynthCodes {
        codes: (0..spec.jobs).map(draw).collect(),
        names: (1..=items).map(|rank| format!("{word}-{rank}")).collect(),
    })
}
