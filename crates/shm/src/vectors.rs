//! Code for the vectors that the processor has.
//!
//! Toehold is compiled for every processor of its architecture. What gains much from wide
//! vectors is compiled for those as well, and chosen when it runs.

/// Plain code in which a compiler sees vectors: loops over arrays.
pub trait Vectors {
    /// What comes of it.
    type Output;

    /// Does it. This and all that it calls must be inlined (`#[inline(always)]`), or is
    /// compiled for the least of processors after all.
    fn run(self) -> Self::Output;
}

/// Does some work in code that was compiled for the widest vectors there are.
#[inline]
pub fn with_vectors<W: Vectors>(work: W) -> W::Output {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        if std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
        {
            // SAFETY: the processor has them all.
            return unsafe { with_avx512(work) };
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { with_avx2(work) };
        }
    }
    work.run()
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2")]
fn with_avx512<W: Vectors>(work: W) -> W::Output {
    work.run()
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
fn with_avx2<W: Vectors>(work: W) -> W::Output {
    work.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Turned([u64; 32]);

    impl Vectors for Turned {
        type Output = [u64; 32];

        #[inline(always)]
        fn run(self) -> [u64; 32] {
            self.0.map(|n| n.rotate_left(13).wrapping_mul(7) ^ n)
        }
    }

    #[test]
    fn the_result_is_the_same_with_vectors() {
        let numbers = std::array::from_fn(|n| n as u64);
        assert_eq!(with_vectors(Turned(numbers)), Turned(numbers).run());
    }
}
