//! Code for the vector instructions of the processor.
//!
//! Toehold is compiled for every processor of its architecture. Code that gains much from wide
//! vectors is also compiled for those, and selected at run time.

/// Plain code that a compiler can vectorise: loops over arrays.
pub trait Vectors {
    /// The result.
    type Output;

    /// Runs the code. This function and all that it calls must be inlined (`#[inline(always)]`), or
    /// the compiler uses the least processor's instructions after all.
    fn run(self) -> Self::Output;
}

/// Runs `work` in code that was compiled for the widest available vectors.
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
            // SAFETY: the processor has all of these features, as checked above.
            return unsafe { with_avx512(work) };
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has this feature, as checked above.
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
    fn vectors_do_not_change_result() {
        let numbers = std::array::from_fn(|n| n as u64);
        assert_eq!(with_vectors(Turned(numbers)), Turned(numbers).run());
    }
}
