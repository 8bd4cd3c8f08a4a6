//! Inputs that are nearly those of a corpus: the same on every machine.

/// How many are made of one file.
const OF_EACH: u64 = 96;

/// Bytes that mean something to one of the readers.
const TELLING: &[u8] = b"\0\x01\x7f\x80\xff\n \"'/\\{}[]:,.-+09%";

/// A sequence of numbers (splitmix64; Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One below `end`, which is above zero.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or_default()
    }
}

/// What a file becomes by small changes; `other` is a file whose pieces may be put into it.
pub fn mutants(file: &[u8], other: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..OF_EACH).map(|number| {
        let mut numbers = Numbers(number << 32 | file.len() as u64);
        let mut bytes = file.to_vec();
        for _ in 0..=numbers.below(3) {
            change(&mut bytes, other, &mut numbers);
        }
        bytes
    })
}

fn change(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let at = numbers.below(bytes.len() + 1);
    let end = at + numbers.below((bytes.len() - at).min(16) + 1);
    match numbers.below(6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => bytes.insert(at, TELLING[numbers.below(TELLING.len())]),
        3 => {
            let piece = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, piece));
        }
        4 => {
            let from = numbers.below(other.len() + 1);
            let piece = &other[from..from + numbers.below((other.len() - from).min(64) + 1)];
            drop(bytes.splice(at..end, piece.iter().copied()));
        }
        _ => {
            let bit = numbers.below(8);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
    }
}
