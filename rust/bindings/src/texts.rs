//! String columns in Arrow's layout: one array of bytes, and the position at which each string starts.

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustc_hash::FxHasher;
use std::hash::Hasher;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(surely_distinct, module)?)
}

/// Returns whether all strings are certainly different; false means that some might be equal.
///
/// String `i` is `bytes[offsets[i]..offsets[i + 1]]`. If the strings ascend by length and then by bytes, as "9" and
/// "10" do, each is compared only with the next one. Otherwise, strings are compared by their hashes, because different
/// hashes prove that the strings differ.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
fn surely_distinct(
    py: Python<'_>,
    offsets: PyReadonlyArray1<'_, i32>,
    bytes: PyReadonlyArray1<'_, u8>,
) -> PyResult<bool> {
    let texts = Texts {
        offsets: offsets.as_slice()?,
        bytes: bytes.as_slice()?,
    };
    texts.check()?;
    Ok(py.detach(|| texts.ascend() || texts.hashes_differ()))
}

struct Texts<'a> {
    offsets: &'a [i32],
    bytes: &'a [u8],
}

impl Texts<'_> {
    /// Checks that the offsets are ascending positions in the byte array.
    fn check(&self) -> PyResult<()> {
        let ascend = self.offsets.is_sorted() && self.offsets.first().is_none_or(|&at| at >= 0);
        let last = self.offsets.last().map_or(0, |&at| at as usize);
        if ascend && last <= self.bytes.len() {
            return Ok(());
        }
        Err(PyValueError::new_err(
            "offsets: expected positions in ascending order, within the bytes",
        ))
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let spans = self.offsets.windows(2);
        spans.map(|span| &self.bytes[span[0] as usize..span[1] as usize])
    }

    /// Returns whether the strings ascend strictly, first by length and then by bytes.
    fn ascend(&self) -> bool {
        self.iter()
            .is_sorted_by(|one, next| (one.len(), *one) < (next.len(), *next))
    }

    fn hashes_differ(&self) -> bool {
        let hash = |text: &[u8]| {
            let mut hasher = FxHasher::default();
            hasher.write(text);
            hasher.finish()
        };
        let mut hashes: Vec<u64> = self.iter().map(hash).collect();
        hashes.sort_unstable();
        hashes.is_sorted_by(|one, next| one < next)
    }
}
