//! On which core a thread runs, where the system lets a program say it: on Linux.

pub(super) use system::{Elsewhere, stay_on, visit};

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::super::cores::Core;

    /// The CPUs on which a thread ran before it came to a core.
    pub(crate) struct Elsewhere(CpuSet);

    impl Elsewhere {
        /// Lets the calling thread, which must be the one that came, run there again.
        pub(crate) fn go_back(self) {
            let _ = sched_setaffinity(None, &self.0);
        }
    }

    /// Lets the calling thread run on the CPUs of `core` only; where the system does not, it runs where it did.
    pub(crate) fn stay_on(core: &Core) {
        let mut cpus = CpuSet::new();
        countable(core).for_each(|cpu| cpus.set(cpu));
        // An empty set is refused, and so changes nothing.
        let _ = sched_setaffinity(None, &cpus);
    }

    /// The same until it goes back. A thread that was not free to run there stays where it is.
    pub(crate) fn visit(core: &Core) -> Option<Elsewhere> {
        let cpus = sched_getaffinity(None).ok()?;
        if !countable(core).all(|cpu| cpus.is_set(cpu)) {
            return None;
        }
        stay_on(core);
        Some(Elsewhere(cpus))
    }

    /// A set holds no number beyond its size.
    fn countable(core: &Core) -> impl Iterator<Item = usize> {
        core.iter().copied().filter(|cpu| *cpu < CpuSet::MAX_CPU)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_visit_ends_where_it_began() {
            let before = sched_getaffinity(None).unwrap();
            let mine = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap();
            let elsewhere = visit(&Core::from([mine])).unwrap();
            let there = sched_getaffinity(None).unwrap();
            assert_eq!((there.count(), there.is_set(mine)), (1, true));
            if let Some(other) = (0..CpuSet::MAX_CPU).find(|cpu| !there.is_set(*cpu)) {
                assert!(visit(&Core::from([other])).is_none(), "a bound thread is not taken elsewhere");
            }
            elsewhere.go_back();
            assert!(sched_getaffinity(None).unwrap() == before);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::super::cores::Core;

    /// No thread comes to a core.
    pub(crate) struct Elsewhere;

    impl Elsewhere {
        /// Nothing to do.
        pub(crate) fn go_back(self) {}
    }

    /// The system places threads itself.
    pub(crate) fn stay_on(_: &Core) {}

    /// The system places threads itself.
    pub(crate) fn visit(_: &Core) -> Option<Elsewhere> {
        None
    }
}
