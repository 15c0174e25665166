//! Allocations that are solved in parts.

use gangline_allocation::{Allocator, Ask, EqualSplit, in_parts};
use gangline_engine::PolicyError;
use gangline_model::JobId;

fn ask(jobs: u32) -> Ask {
    Ask {
        seed: 7,
        jobs: (0..jobs).map(JobId).collect(),
        rates: vec![1.0; jobs as usize * 2],
        gangs: vec![1.0; jobs as usize],
        capacity: vec![3.0, 5.0],
        ..Ask::default()
    }
}

/// Records which jobs were requested together, and gives each job its number as its share.
#[derive(Default)]
struct Witness(Vec<(Vec<u32>, Vec<f64>)>);

impl Allocator for Witness {
    fn allocate(&mut self, ask: &Ask) -> Result<Vec<f64>, PolicyError> {
        let jobs: Vec<u32> = ask.jobs.iter().map(|job| job.0).collect();
        self.0.push((jobs, ask.capacity.clone()));
        Ok(ask
            .jobs
            .iter()
            .flat_map(|job| [f64::from(job.0), 0.5])
            .collect())
    }
}

#[test]
fn parts_are_equal_and_each_job_is_in_one() {
    let mut witness = Witness::default();
    let shares = in_parts(&mut witness, &ask(8), 3).expect("no error");
    let expected: Vec<f64> = (0..8).flat_map(|job| [f64::from(job), 0.5]).collect();
    assert_eq!(shares.alone, expected, "answers come back in order of jobs");
    let sizes: Vec<usize> = witness.0.iter().map(|(jobs, _)| jobs.len()).collect();
    assert_eq!(sizes, [3, 3, 2]);
    let mut all: Vec<u32> = witness
        .0
        .iter()
        .flat_map(|(jobs, _)| jobs.clone())
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..8).collect::<Vec<u32>>());
    assert!(witness.0.iter().all(|(jobs, _)| jobs.is_sorted()));
    assert!(witness.0.iter().all(|(_, gpus)| *gpus == [1.0, 5.0 / 3.0]));
}

#[test]
fn there_are_no_more_parts_than_jobs() {
    let mut witness = Witness::default();
    in_parts(&mut witness, &ask(2), 9).expect("no error");
    assert_eq!(witness.0.len(), 2);
    assert_eq!(witness.0[0].1, [1.5, 2.5]);
}

#[test]
fn one_part_is_the_whole() {
    let whole = EqualSplit.allocate(&ask(4)).expect("no error");
    let part = in_parts(&mut EqualSplit, &ask(4), 1).expect("no error");
    assert_eq!(part.alone, whole);
}
