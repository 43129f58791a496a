//! Independent seeds, made from a seed and labels (SplitMix64).

/// A seed from a seed and a label's numbers (SplitMix64's finaliser, Steele, Lea and Flood 2014).
pub fn mix(seed: u64, parts: &[u64]) -> u64 {
    parts.iter().fold(seed, |acc, part| {
        let mut z = acc.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_add(part.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// What [`fnv`] begins with.
pub const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, 64 bits: stable by its definition, and no secret depends on it.
pub fn fnv(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_seeds_differ_in_every_part() {
        assert_ne!(mix(1, &[2, 3]), mix(1, &[3, 2]));
        assert_ne!(mix(1, &[2]), mix(2, &[2]));
        assert_eq!(mix(9, &[1, 2]), mix(9, &[1, 2]));
    }
}
