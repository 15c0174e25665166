//! Draws elastic jobs for random worlds.

use super::Numbers;
use gangline_model::{ElasticClass, ElasticTable, Gradient, JobColumns, NoisePhase, StepFit};

/// Makes about half of the jobs elastic. The work of an elastic job is measured in iterations at its initial batch
/// size.
///
/// # Panics
/// This function never panics, because the classes are valid.
pub(super) fn draw(numbers: &mut Numbers, columns: &mut JobColumns) -> ElasticTable {
    let jobs = columns.gpus.len();
    let batches = columns.batch_size.get_or_insert_with(|| vec![0; jobs]);
    let mut row = vec![u32::MAX; jobs];
    let mut classes = Vec::new();
    for job in 0..jobs {
        let class = draw_class(numbers, columns.gpus[job]);
        if numbers.once_in(2) {
            continue;
        }
        let needs_memory = columns
            .memory_bytes
            .as_ref()
            .is_some_and(|all| all[job] > 0);
        batches[job] = class.batch_size;
        row[job] = classes.len() as u32;
        classes.push(ElasticClass {
            // Passes with more samples than in the trace might need more memory than the GPUs have.
            max_pass_batch: class.max_pass_batch.min(if needs_memory {
                class.batch_size
            } else {
                u32::MAX
            }),
            min_pass_batch: class.min_pass_batch.min(class.batch_size),
            ..class
        });
    }
    let table = ElasticTable::new(row.clone(), classes).expect("valid classes");
    let rates = columns.ref_rate.get_or_insert_with(|| vec![1.0; jobs]);
    for (job, model) in row.iter().enumerate() {
        if let Some(model) = table.models().get(*model as usize) {
            rates[job] = model.mean_rate();
            columns.work[job] *= rates[job];
        }
    }
    table
}

fn draw_class(numbers: &mut Numbers, gpus: u32) -> ElasticClass {
    let init_batch = numbers.pick(&[8, 16, 20]);
    let noise_batches = numbers.pick(&[&[][..], &[8], &[16, 40, 100]]);
    let gradient = |numbers: &mut Numbers| Gradient {
        sqr: numbers.pick(&[0.0, 0.1, 1.0]),
        var: numbers.pick(&[0.0, 0.5, 4.0]),
    };
    let noise = |numbers: &mut Numbers, progress| NoisePhase {
        progress,
        gradients: (0..noise_batches.len().max(1))
            .map(|_| gradient(numbers))
            .collect(),
    };
    let later = numbers.pick(&[&[][..], &[0.5], &[0.1, 0.35], &[0.25, 0.5, 0.9]]);
    let starts = std::iter::once(&0.0).chain(later);
    ElasticClass {
        fit: StepFit {
            pass_s: [numbers.pick(&[0.01, 0.1]), numbers.pick(&[0.001, 0.02])],
            servers_s: [numbers.pick(&[0.05, 1.0]), numbers.pick(&[0.0, 0.02])],
            server_s: [numbers.pick(&[0.0, 0.2]), numbers.pick(&[0.0, 0.01])],
            gamma: numbers.pick(&[1.0, 1.5, 10.0]),
        },
        init_batch,
        max_batch: init_batch * numbers.pick(&[1, 6, 50]),
        min_pass_batch: numbers.pick(&[1, 4]),
        max_pass_batch: numbers.pick(&[4, 8, 32]),
        min_gpus: if numbers.once_in(4) { gpus } else { 1 },
        max_gpus: gpus + numbers.below(9) as u32,
        gpus,
        batch_size: init_batch.div_ceil(gpus) * numbers.pick(&[1, 2, 5]),
        fits_server: numbers.once_in(2),
        noise_batches: noise_batches.to_vec(),
        phases: starts.map(|&at| noise(numbers, at)).collect(),
    }
}
