//! Sixteen numbers at a time, as processors compare and pack them.
//!
//! Cost: some twenty instructions, without a branch.

pub(super) const MANY: usize = 16;

pub(super) type Chunk = [i32; MANY];

/// A bit per number, 1 if it is greater.
#[inline]
pub(super) fn above(chunk: &Chunk, bound: i32) -> u32 {
    let mut bytes = [0; MANY];
    compare(chunk, bound, &mut bytes);
    gathered(bytes)
}

/// A bit per number, 1 if it is not greater.
#[inline]
pub(super) fn up_to(chunk: &Chunk, bound: i32) -> u32 {
    above(chunk, bound) ^ 0xffff
}

/// A bit per number, 1 if it is less than its counterpart.
#[inline]
pub(super) fn below(chunk: &Chunk, bounds: &Chunk) -> u32 {
    let mut bytes = [0; MANY];
    compare_pairs(chunk, bounds, &mut bytes);
    gathered(bytes)
}

/// Not inline, nor the other one: so the compiler sees bytes in memory and compares many at once.
#[inline(never)]
fn compare(chunk: &Chunk, bound: i32, bytes: &mut [u8; MANY]) {
    for (byte, &value) in bytes.iter_mut().zip(chunk) {
        *byte = u8::from(value > bound);
    }
}

#[inline(never)]
fn compare_pairs(chunk: &Chunk, bounds: &Chunk, bytes: &mut [u8; MANY]) {
    for ((byte, &value), &bound) in bytes.iter_mut().zip(chunk).zip(bounds) {
        *byte = u8::from(value < bound);
    }
}

/// Bytes of 0 and 1 as bits.
#[inline]
fn gathered(bytes: [u8; MANY]) -> u32 {
    let bytes = u128::from_le_bytes(bytes);
    // moves byte n to bit n of the highest byte
    let gather = |half: u64| (half.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32;
    gather(bytes as u64) | gather((bytes >> 64) as u64) << 8
}

/// Numbers of the bits that are 1.
#[inline]
pub(super) fn members(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = bits.trailing_zeros() as usize;
        (bits != 0).then(|| {
            bits &= bits - 1;
            first
        })
    })
}
