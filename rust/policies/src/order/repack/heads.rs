//! Step 1 for clusters of several GPU types and for keys that move, where the whole order decides who is admitted on
//! which type: a walk over the running jobs and the heads of the classes.

use super::{Admission, Repack};
use crate::class::Places;
use crate::order::Rank;
use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, JobId};
use std::cmp::Reverse;

impl Repack {
    /// The count over running jobs and heads. O((running + classes) log n).
    pub(super) fn walk_heads(&mut self, view: &ClusterView<'_>, places: &Places) {
        let now = view.now().0;
        let types = view.cluster().gpu_types().len();
        let mut left: Vec<u32> = (0..types)
            .map(|at| view.gpus_up(GpuTypeId::new(at)))
            .collect();
        let mut running: Vec<Rank> = self.running.ranks(now).collect();
        running.sort_unstable();
        self.collect_heads(places, |_| true);
        let mut running = running.into_iter().peekable();
        loop {
            let head = self.heads.peek().map(|&Reverse(head)| head);
            match (running.peek().copied(), head) {
                (None, None) => break,
                (Some(rank), head) if head.is_none_or(|(head, _)| rank < head) => {
                    running.next();
                    self.pass_running(view, places, rank, &mut left);
                }
                (_, Some((_, class))) => {
                    self.heads.pop();
                    let of = places.classes().get(class);
                    let fits = |t: &&GpuTypeId| left[t.index()] >= of.gpus;
                    if let Some(&gpu_type) = of.types.iter().find(fits) {
                        left[gpu_type.index()] -= of.gpus;
                        self.admit_on(class, gpu_type, of.gpus, now);
                        self.push_head(class, places);
                    }
                }
                (Some(_), None) => unreachable!("without a head the running job comes first"),
            }
        }
    }

    fn pass_running(
        &mut self,
        view: &ClusterView<'_>,
        places: &Places,
        rank: Rank,
        left: &mut [u32],
    ) {
        let job = JobId(rank.job);
        let class = places.classes().of(job);
        let of = places.classes().get(class);
        let key = self.ledger.key(job);
        let own = view.run(job).expect("a running job").gpu_type();
        let others = of.types.iter().copied().filter(|&t| t != own);
        match std::iter::once(own)
            .chain(others)
            .find(|t| left[t.index()] >= of.gpus)
        {
            Some(gpu_type) => {
                left[gpu_type.index()] -= of.gpus;
                if gpu_type != own {
                    self.admitted.push(Admission {
                        class,
                        gpu_type,
                        key,
                        is_running: true,
                    });
                }
            }
            None => self.drop_job(key, class, of.gpus),
        }
    }

    /// Fills `heads` with the heads of the classes that pass a test.
    pub(super) fn collect_heads(&mut self, places: &Places, mut test: impl FnMut(usize) -> bool) {
        self.heads.clear();
        let mut classes = std::mem::take(&mut self.candidates);
        classes.clear();
        classes.extend_from_slice(self.ledger.classes());
        for &class in classes.iter().filter(|&&class| test(class)) {
            self.push_head(class, places);
        }
        self.candidates = classes;
    }

    pub(super) fn push_head(&mut self, class: usize, places: &Places) {
        if let Some(key) = self.ledger.head(class) {
            let rank = self.measure.waiting(key, places.classes().get(class).gpus);
            self.heads.push(Reverse((rank, class)));
        }
    }
}
