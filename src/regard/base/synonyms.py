"""Other toolkits' names for options and settings: one table, Regard's name first, then theirs.

A synonym is answered with the name that Regard uses and is not accepted itself, so that a setting has one name in
commands, recipes and reports. Where a word has several meanings, the first of our names that fits is offered.
"""

from __future__ import annotations

from collections.abc import Iterable

SETTINGS = {
    "data.longest": (
        "seq_len seq_length sequence_length max_length max_len max_seq_len max_seq_length max_source_length "
        "max_target_length"
    ),
    "data.vocabulary": "vocab vocab_size n_vocab max_vocab bpe_size num_merges",
    "data.source": "src source_lang src_lang",
    "data.target": "tgt trg target_lang tgt_lang",
    "data.tokenizer": "level tokenization",
    "data.corpus": "dataset",
    "model.context": (
        "block_size seq_len seq_length sequence_length n_positions n_ctx context_length max_position_embeddings "
        "max_length max_len max_seq_len max_seq_length"
    ),
    "model.embedding": "emb_dim embed_dim embedding_dim embedding_size emsize word_vec_size",
    "model.width": (
        "d_model dim hidden hidden_dim hidden_size n_embd n_hidden nhid rnn_size emb_dim embed_dim embedding_dim "
        "embedding_size emsize word_vec_size"
    ),
    "model.feedforward": "d_ff d_inner dim_feedforward ffn_dim intermediate_size",
    "model.layers": "depth n_layer n_layers nlayers num_layers num_hidden_layers encoder_layers num_encoder_layers",
    "model.decoder_layers": "num_decoder_layers",
    "model.heads": "n_head n_heads nhead num_heads num_attention_heads attention_heads",
    "model.key_value_heads": "num_key_value_heads num_kv_heads n_kv_heads n_kv_head kv_heads groups",
    "model.dropout_attention": "attention_dropout attn_dropout attn_pdrop",
    "model.dropout": (
        "dropout_rate drop p_dropout resid_pdrop hidden_dropout_prob attention_dropout attn_dropout attn_pdrop"
    ),
    "model.score": "attention_type",
    "model.bidirectional": "bidir",
    "model.cell": "rnn_type",
    "model.tied": "tie_weights tie_word_embeddings tied_embeddings",
    "model.shared": "share_embeddings",
    "model.position": "pos_encoding positional_encoding position_embedding",
    "model.activation": "activation_function hidden_act",
    "model.order": "n ngram",
    "training.learning_rate": "lr learningrate max_lr peak_lr",
    "training.batch_tokens": "batch_size batchsize max_tokens_per_batch per_device_train_batch_size train_batch_size",
    "training.accumulate": "gradient_accumulation_steps accum accum_count grad_accum update_freq",
    "training.steps": "max_iters iterations max_steps train_steps updates max_update",
    "training.epochs": "num_epochs num_train_epochs max_epochs",
    "training.warmup": "warmup_steps warmup_iters warmup_updates num_warmup_steps warmup_ratio",
    "training.weight_decay": "wd l2 weightdecay",
    "training.beta2": "adam_beta2 betas",
    "training.clip": "grad_clip gradient_clip clip_norm clip_grad max_grad_norm",
    "training.schedule": "lr_scheduler lr_scheduler_type scheduler",
    "training.optimizer": "optim optimiser",
    "training.patience": "early_stopping early_stopping_patience",
    "training.evaluate_every": "eval_steps eval_every eval_interval valid_steps",
    "training.checkpoint_every": "save_steps save_every save_interval",
    "training.precision": "fp16 bf16 amp dtype",
    "training.device": "gpu gpus cuda cpu no_cuda",
    "training.threads": "num_threads num_workers",
    "training.shard": "fsdp",
    "training.seed": "random_seed",
    "training.window": (
        "bptt block_size seq_len seq_length sequence_length max_length max_len max_seq_len max_seq_length"
    ),
    "training.label_smoothing": "smoothing label_smoothing_factor",
    "training.consistency": "rdrop",
    "training.ema": "ema_decay",
}

SECTIONS = {  # of a recipe
    "data": "dataset datasets corpus text",
    "model": "arch architecture network net",
    "training": "train trainer fit optim optimization hyperparameters hparams",
}

OPTIONS = {  # of some verb
    "from": "checkpoint ckpt pretrained init_from finetune fine_tune",
    "run": "output output_dir out_dir save_dir save folder name out o checkpoint ckpt",
    "out": "output output_dir out_dir save o",
    "html": "output",
    "data": "train train_file train_data dataset corpus input file text",
    "in": "input file",
    "budget": "time max_time tokens",
    "seed": "random_seed",
    "seeds": "n_seeds",
    "track": "tracker logger log_to report_to tensorboard wandb mlflow",
    "on": "cluster executor launcher backend",
    "dry-run": "dry",
    "print-recipe": "config show_config",
    "size": "preset",
    "beam": "beam_size num_beams beam_width",
    "n-best": "nbest num_return_sequences",
    "max-tokens": "max_new_tokens max_length",
    "length-penalty": "lenpen",
    "temperature": "temp",
    "top-k": "topk",
    "top-p": "topp",
    "device": "gpu cuda",
    "rows": "batch_size",
}

COMMANDS = {
    "--version": "version",
    "systems": "list ls models model show",
    "data": "datasets corpora",
    "data fetch": "download fetch get",
    "data check": "check validate",
    "train": "fit finetune learn run",
    "resume": "continue restart",
    "evaluate": "eval test perplexity bleu",
    "score": "logprob",
    "generate": "predict sample complete",
    "chat": "talk write interactive repl",
    "runs": "experiments history ps",
    "runs remove": "remove delete rm",
    "runs rename": "rename mv",
    "translate": "infer decode",
    "classify": "label",
    "inspect": "explain trace visualize visualise attention plot",
    "bench": "benchmark speed",
    "laws": "verify",
    "claims": "prove",
    "export": "convert save",
    "import": "load",
    "demo": "start quickstart tutorial",
}

# No options: what comes first after the verb.
SYSTEM_FIRST = "model system arch architecture model_type"
RUN_FIRST = f"{SYSTEM_FIRST} checkpoint ckpt run model_path"


def from_synonym(word: str, table: dict[str, str], known: Iterable[str]) -> str | None:
    """What a word of another toolkit is called here, if it is among the known; dashes and capitals do not matter."""
    plain = word.strip("-").rpartition(".")[2].replace("-", "_").lower()
    known = set(known)
    return next((name for name, words in table.items() if name in known and plain in words.split()), None)
