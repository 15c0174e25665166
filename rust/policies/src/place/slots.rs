//! Chooses the slots on a server.

use gangline_model::mask_of_lowest;

/// Returns `gpus` slots of the lowest free block that is aligned to the next power of two, or the lowest free slots if
/// there is no such block.
pub(super) fn aligned_mask(mask: u64, gpus: u32) -> u64 {
    let block = gpus.next_power_of_two();
    // Bit i stays set if slot i and the block - 1 slots after it are free.
    let mut runs = mask;
    let mut width = 1;
    while width < block {
        runs &= runs >> width;
        width *= 2;
    }
    let mut starts = 1_u64;
    let mut width = block;
    while width < 64 {
        starts |= starts << width;
        width *= 2;
    }
    let start = (runs & starts).trailing_zeros();
    if start == 64 {
        mask_of_lowest(mask, gpus)
    } else {
        (u64::MAX >> (64 - gpus)) << start
    }
}

#[cfg(test)]
mod tests {
    use super::aligned_mask;

    #[test]
    fn takes_the_lowest_free_block() {
        assert_eq!(aligned_mask(0b1111_0110, 1), 0b10);
        assert_eq!(aligned_mask(0b1111_0110, 2), 0b11_0000);
        assert_eq!(aligned_mask(0b1111_0110, 3), 0b111_0000);
        assert_eq!(aligned_mask(0b1111_0110, 4), 0b1111_0000);
        // There is no free block of eight, so the lowest slots are taken.
        assert_eq!(aligned_mask(0b1111_0110, 5), 0b0111_0110);
        assert_eq!(aligned_mask(0b0111_1110, 4), 0b1_1110);
        assert_eq!(aligned_mask(u64::MAX, 64), u64::MAX);
        assert_eq!(aligned_mask(u64::MAX << 1, 33), (u64::MAX >> 31) << 1);
        assert_eq!(aligned_mask(u64::MAX << 32, 32), u64::MAX << 32);
    }
}
