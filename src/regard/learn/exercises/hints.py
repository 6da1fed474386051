"""Three hints for each exercise: where to look, which operation to use, and almost the line. Nothing imports torch."""

from __future__ import annotations

HINTS: dict[str, tuple[str, str, str]] = {
    "rnn-step": (
        "Three terms are added before the tanh: one from the word, one from the past, and the bias.",
        "The rows of x are vectors, so W x for all rows is x @ W.T. U h is written the same way.",
        "torch.tanh(…) of x @ W.T, the same product for hidden and U, and b.",
    ),
    "lstm-gates": (
        "The four pieces come before their activations: three of them are gates, and one is content.",
        "Gates go through torch.sigmoid, the update through torch.tanh. Compute the new cell first: hidden needs it.",
        "new = σ(forget) * cell + σ(store) * tanh(update), and hidden is σ(output) times the tanh of new.",
    ),
    "gru-gates": (
        "Each of reset and update adds its part of from_word and its part of from_past. Only the candidate differs.",
        "In the candidate, r multiplies from_past[2], which is U_n h, and not hidden itself.",
        "n = tanh(from_word[2] + r * from_past[2]), and then z weighs hidden against n, so that z = 1 keeps hidden.",
    ),
    "teacher-forcing": (
        "The token that is read at step t was already given at step t − 1, whatever the model would have predicted.",
        "Loop over t: call step with the token and the state, take the loss of targets[:, t], then read targets[:, t].",
        "Begin with a tensor [R] full of bos. A loss is −log_softmax(logits) at the target; torch.stack(found, dim=1).",
    ),
    "gradient-clipping": (
        "There is one norm for all the gradients together, and so one factor for all of them.",
        "Sum the squares over every entry of every tensor, and take the root once at the end.",
        "The factor is most / norm if norm is larger than most, and otherwise 1: it never makes a gradient longer.",
    ),
    "causal-mask": (
        "Draw it for length 3: row 1 has one True, row 2 two, row 3 three.",
        "That is a lower triangle with its diagonal. Rows are queries and columns are keys.",
        "torch.ones(length, length, dtype=torch.bool) has a method that keeps its lower triangle: tril.",
    ),
    "scaled-dot-product": (
        "There are four steps: scores, scale, mask, softmax. The mask comes before the softmax.",
        "query @ key.transpose(-2, -1) is [R, T, S]. d is the last size of query, and the softmax runs over the keys.",
        "scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ value, with scores divided by d ** 0.5.",
    ),
    "multi-head": (
        "`attention` works on the last two axes, so the heads must be an axis to the left of T.",
        "Cut D into [H, d] first, which is view(R, T, H, d), and only then exchange T and H.",
        "After attention, [R, H, T, d]: transpose(1, 2) back to [R, T, H, d], then reshape(R, T, D).",
    ),
    "additive-score": (
        "The query is one vector per row and the memory has S: the query's part is the same for all S.",
        "(query @ W_q.T)[:, None] is [R, 1, A] and memory @ W_k.T is [R, S, A]: add them, then tanh, then @ v.",
        "weights = (torch.tanh(…) @ v).softmax(dim=-1), and the context is (weights[:, :, None] * memory).sum(1).",
    ),
    "kernel-regression": (
        "Every query has a distance to every key: begin with a table [Q, N].",
        "query[:, None] - keys is that table. Divide it by the bandwidth, then square it.",
        "weights = (-0.5 * u**2).exp(); the prediction is weights @ values divided by weights.sum(1).",
    ),
    "cached-attention": (
        "The cache grows before attention, because the new word also sees itself.",
        "torch.cat([keys, key[:, None]], dim=1) puts the new key last. The scores of one query are [R, S + 1].",
        "scores = (keys @ query[:, :, None]).squeeze(-1) / d ** 0.5 with the longer keys; softmax over the last axis.",
    ),
    "sinusoid-positions": (
        "There are width / 2 frequencies, and each fills two neighboring components.",
        "t[:, None] * omega is [T, n], with omega = 10000.0 ** (-torch.arange(n) / n) in float64.",
        "torch.stack([angle.sin(), angle.cos()], dim=-1) is [T, n, 2]; flatten(1) puts the pairs beside each other.",
    ),
    "layer-norm": (
        "Mean and variance belong to one vector: they run over the last axis, and keep it as an axis of size 1.",
        "The variance is the mean of the squared differences, so it is divided by D: var(…, correction=0).",
        "(x − mean) / torch.sqrt(variance + epsilon), then times gain, then plus bias.",
    ),
    "residual-block": (
        "Two lines, one for each sublayer. Both have the same form.",
        "A sublayer reads the normalized x, but its output is added to x itself.",
        "x = x + attention(norm_1(x)), and the second line reads the new x.",
    ),
    "word-average": (
        "Position t needs the sum of the first t words, and how many they are.",
        "x.cumsum(dim=1) has all those sums at once.",
        "Divide by torch.arange(1, T + 1), written [T, 1] so that it meets the axis of positions.",
    ),
    "ngram-counts": (
        "Count pairs of neighbors: words[:-1] are the words before, words[1:] the next ones.",
        "Begin with a float64 table [V, V] that is full of k, and add 1 at [h, w] for each pair.",
        "Divide the table by its row sums, table.sum(dim=1, keepdim=True): k V is in them already.",
    ),
    "continuation-counts": (
        "How often a pair was seen does not matter, only whether it was seen.",
        "counts > 0 says that for each pair; it is a table of True and False.",
        "Sum it over the words before, h, which are the rows: dim=0.",
    ),
    "kneser-ney": (
        "Each row has one sum of counts and one γ: keep both as a column, [V, 1].",
        "γ is discount.sum(1, keepdim=True) divided by the row's count. Rows without counts have γ = 1.",
        "(counts − discount) / total + gamma * lower, with total.clamp(min=1) so that an empty row divides by 1.",
    ),
    "corpus-perplexity": (
        "A long line has more tokens, so it must weigh more: do not average per line.",
        "torch.cat(lines) is one long vector of log-probabilities.",
        "The exponential of minus its mean.",
    ),
    "bleu-score": (
        "`ngrams` counts for you: for each n take the counts of both sentences.",
        "An n-gram of the translation matches min(its count, theirs[gram]) times; a Counter returns 0 for a "
        "missing n-gram.",
        "The fourth root of a product is math.exp of the mean logarithm; the penalty is min(1, math.exp(1 − r / c)).",
    ),
    "greedy-decoding": (
        "Three things change in the loop: the token that is read, the state, and the list of written tokens.",
        "logits, state = step(token, state); the next token is int(logits.argmax()), which is written and then read.",
        "Append first, then test for eos: <eos> belongs to the text. The loop runs at most limit times.",
    ),
    "beam-search": (
        "A candidate is a pair: a hypothesis and a token. There are K · V of them, and they compete with each other.",
        "scores[:, None] + log_probabilities is [K, V]; flatten it and take topk(width).",
        "A flat place p is hypothesis p // V and token p % V.",
    ),
    "temperature-top-k": (
        "Words that may not be drawn need the logit −∞, so that the softmax gives them 0 and the others sum to 1.",
        "logits.topk(k, dim=-1) has the k largest of each row; the last of them is the smallest one allowed.",
        "masked_fill(logits < least, -torch.inf), divided by the temperature, then softmax over the last axis.",
    ),
    "nucleus-sampling": (
        "Sort the words by probability, largest first, and remember where each came from.",
        "A word is kept if the sum of those before it, without it, is still below p.",
        "Sorted values s, their order o: keep = s.cumsum(0) − s < p. Put s * keep back at o; divide by its sum.",
    ),
    "label-smoothing": (
        "The second term is the mean of −log P over all V words, and the target is one of them.",
        "log_softmax(dim=-1) gives all log-probabilities at once; gather picks the target's.",
        "−(1 − share) * logs[range, targets] − share * logs.mean(-1), where range is torch.arange(N).",
    ),
    "warm-up-schedule": (
        "There are two formulas, and an if between them.",
        "Steps 0 … warmup − 1 rise: the condition is step < warmup.",
        "peak * (step + 1) / warmup, and afterwards peak * math.sqrt(warmup / step).",
    ),
}
