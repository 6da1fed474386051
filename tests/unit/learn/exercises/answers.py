"""What fills the blank of each exercise: the solution, and the mistakes that the grader must know by name."""

from textwrap import dedent, indent


def filled(sheet: str, body: str) -> str:
    """The sheet with these lines in the place of its blank."""
    (blank,) = [line for line in sheet.splitlines() if line.strip().startswith("raise NotImplementedError")]
    return sheet.replace(blank, indent(dedent(body).strip(), "    "))


SOLUTIONS = {
    "rnn-step": "return torch.tanh(x @ W.T + hidden @ U.T + b)",
    "lstm-gates": """
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(store) * torch.tanh(update)
        return torch.sigmoid(output) * torch.tanh(cell), cell
    """,
    "gru-gates": """
        r = torch.sigmoid(from_word[0] + from_past[0])
        z = torch.sigmoid(from_word[1] + from_past[1])
        n = torch.tanh(from_word[2] + r * from_past[2])
        return z * hidden + (1 - z) * n
    """,
    "teacher-forcing": """
        read, found = torch.full_like(targets[:, 0], bos), []
        for t in range(targets.shape[1]):
            logits, state = step(read, state)
            found.append(torch.nn.functional.cross_entropy(logits, targets[:, t], reduction="none"))
            read = targets[:, t]
        return torch.stack(found, dim=1)
    """,
    "gradient-clipping": """
        norm = sum((g**2).sum() for g in gradients) ** 0.5
        return [g * most / norm if norm > most else g for g in gradients]
    """,
    "causal-mask": "return torch.tril(torch.ones(length, length, dtype=torch.bool))",
    "scaled-dot-product": """
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ value
    """,
    "multi-head": """
        rows, length, width = query.shape
        q, k, v = (x.view(rows, length, heads, width // heads).transpose(1, 2) for x in (query, key, value))
        return attention(q, k, v).transpose(1, 2).reshape(rows, length, width)
    """,
    "additive-score": """
        scores = torch.tanh((query @ W_q.T)[:, None] + memory @ W_k.T) @ v
        weights = torch.softmax(scores, dim=-1)
        return torch.einsum("rs,rsm->rm", weights, memory), weights
    """,
    "kernel-regression": """
        u = (query[:, None] - keys[None]) / bandwidth
        weights = torch.exp(-(u**2) / 2)
        return (weights * values).sum(1) / weights.sum(1)
    """,
    "cached-attention": """
        keys = torch.cat([keys, key[:, None]], dim=1)
        values = torch.cat([values, value[:, None]], dim=1)
        weights = torch.softmax((keys @ query[:, :, None])[:, :, 0] / query.shape[-1] ** 0.5, dim=-1)
        return (weights[:, :, None] * values).sum(1), keys, values
    """,
    "sinusoid-positions": """
        n = width // 2
        angle = t[:, None] * 10000.0 ** (-torch.arange(n, dtype=torch.float64) / n)
        vectors = torch.zeros(len(t), width, dtype=torch.float64)
        vectors[:, 0::2], vectors[:, 1::2] = torch.sin(angle), torch.cos(angle)
        return vectors
    """,
    "layer-norm": """
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
        return gain * (x - mean) / torch.sqrt(variance + epsilon) + bias
    """,
    "residual-block": """
        x = x + attention(norm_1(x))
        return x + feedforward(norm_2(x))
    """,
    "word-average": "return torch.stack([x[:, : t + 1].mean(1) for t in range(x.shape[1])], dim=1)",
    "ngram-counts": """
        counts = torch.full((vocabulary, vocabulary), k, dtype=torch.float64)
        for h, w in zip(words[:-1], words[1:]):
            counts[h, w] += 1
        return counts / counts.sum(1, keepdim=True)
    """,
    "continuation-counts": "return (counts > 0).sum(dim=0)",
    "kneser-ney": """
        total = counts.sum(1, keepdim=True)
        seen = total.clamp(min=1)
        gamma = torch.where(total > 0, discount.sum(1, keepdim=True) / seen, 1.0)
        return (counts - discount) / seen + gamma * lower
    """,
    "corpus-perplexity": "return torch.exp(-torch.cat(lines).mean())",
    "bleu-score": """
        logs = 0.0
        for n in (1, 2, 3, 4):
            own, theirs = ngrams(translation, n), ngrams(reference, n)
            logs += math.log(sum(min(count, theirs[gram]) for gram, count in own.items()) / sum(own.values()))
        return 100 * min(1, math.exp(1 - len(reference) / len(translation))) * math.exp(logs / 4)
    """,
    "greedy-decoding": """
        token, text = bos, []
        while len(text) < limit:
            logits, state = step(token, state)
            token = logits.argmax().item()
            text.append(token)
            if token == eos:
                break
        return text
    """,
    "beam-search": """
        total = (scores[:, None] + log_probabilities).flatten()
        best, places = total.topk(width)
        return best, places // log_probabilities.shape[1], places % log_probabilities.shape[1]
    """,
    "temperature-top-k": """
        least = logits.topk(k).values[:, -1:]
        return torch.softmax((logits / temperature).masked_fill(logits < least, float("-inf")), dim=-1)
    """,
    "nucleus-sampling": """
        kept, total = torch.zeros_like(probabilities), 0.0
        for word in probabilities.argsort(descending=True):
            kept[word] = probabilities[word]
            total += probabilities[word]
            if total >= p:
                break
        return kept / total
    """,
    "label-smoothing": """
        logs = torch.log_softmax(logits, dim=-1)
        return -(1 - share) * logs[torch.arange(len(targets)), targets] - share * logs.mean(-1)
    """,
    "warm-up-schedule": "return peak * (step + 1) / warmup if step < warmup else peak * math.sqrt(warmup / step)",
}

# What is written, and words of the sentence that must answer it.
WRONG = {
    "rnn-step": [
        ("return x @ W.T + hidden @ U.T + b", "the tanh is missing"),
        ("return torch.tanh(x @ W.T + b)", "the past is missing"),
        ("return torch.tanh(x @ W.T + hidden @ U + b)", "U is transposed"),
        ("return torch.sigmoid(x @ W.T + hidden @ U.T + b)", "through a sigmoid"),
        ("return (torch.tanh(x @ W.T + hidden @ U.T + b),)", "must be a tensor, not a tuple of 1"),
    ],
    "lstm-gates": [
        (
            "c = torch.sigmoid(store) * cell + torch.sigmoid(forget) * torch.tanh(update)\n"
            "return torch.sigmoid(output) * torch.tanh(c), c",
            "the forget gate multiplies the new content",
        ),
        (
            "c = torch.sigmoid(forget) * cell + torch.sigmoid(store) * torch.sigmoid(update)\n"
            "return torch.sigmoid(output) * torch.tanh(c), c",
            "the update goes through a sigmoid",
        ),
        (
            "c = torch.sigmoid(forget) * cell + torch.sigmoid(store) * torch.tanh(update)\n"
            "return torch.sigmoid(output) * c, c",
            "the tanh of the cell is missing",
        ),
        (
            "c = torch.sigmoid(forget) * hidden + torch.sigmoid(store) * torch.tanh(update)\n"
            "return torch.sigmoid(output) * torch.tanh(c), c",
            "multiplies the old hidden state",
        ),
        (
            "c = torch.sigmoid(forget) * cell + torch.sigmoid(store) * torch.tanh(update)\n"
            "return c, torch.sigmoid(output) * torch.tanh(c)",
            "in the wrong order",
        ),
        ("cell *= torch.sigmoid(forget)\nreturn cell, cell", "it changes cell"),
    ],
    "gru-gates": [
        (
            "r, z = torch.sigmoid(from_word[0] + from_past[0]), torch.sigmoid(from_word[1] + from_past[1])\n"
            "return (1 - z) * hidden + z * torch.tanh(from_word[2] + r * from_past[2])",
            "z and 1 − z are swapped",
        ),
        (
            "r, z = torch.sigmoid(from_word[0] + from_past[0]), torch.sigmoid(from_word[1] + from_past[1])\n"
            "n = torch.tanh(from_word[2] + (r * hidden) @ U[-hidden.shape[1] :].T)\n"
            "return z * hidden + (1 - z) * n",
            "the reset gate acts before U_n",
        ),
        (
            "z = torch.sigmoid(from_word[1] + from_past[1])\n"
            "return z * hidden + (1 - z) * torch.tanh(from_word[2] + from_past[2])",
            "the reset gate is missing",
        ),
    ],
    "teacher-forcing": [
        (
            """
            read, found = torch.full_like(targets[:, 0], bos), []
            for t in range(targets.shape[1]):
                logits, state = step(read, state)
                found.append(torch.nn.functional.cross_entropy(logits, targets[:, t], reduction="none"))
                read = logits.argmax(-1)
            return torch.stack(found, dim=1)
            """,
            "reads its own most probable word",
        ),
        (
            """
            found = []
            for t in range(targets.shape[1]):
                logits, state = step(targets[:, t], state)
                found.append(torch.nn.functional.cross_entropy(logits, targets[:, t], reduction="none"))
            return torch.stack(found, dim=1)
            """,
            "reads the word that it must predict",
        ),
        (
            """
            read, found = torch.full_like(targets[:, 0], bos), []
            for t in range(targets.shape[1]):
                logits, _ = step(read, state)
                found.append(torch.nn.functional.cross_entropy(logits, targets[:, t], reduction="none"))
                read = targets[:, t]
            return torch.stack(found, dim=1)
            """,
            "the state is not carried",
        ),
    ],
    "gradient-clipping": [
        ("return [g * min(1.0, most / g.norm()) for g in gradients]", "by its own norm"),
        ("return [g.clamp(-most, most) for g in gradients]", "every entry is clipped"),
        (
            "norm = torch.cat([g.flatten() for g in gradients]).norm()\nreturn [g * most / norm for g in gradients]",
            "short gradients are made longer",
        ),
        ("return gradients[0]", "must be a list"),
    ],
    "causal-mask": [
        ("return torch.ones(length, length, dtype=torch.bool).tril(-1)", "hides the diagonal"),
        ("return torch.ones(length, length, dtype=torch.bool).triu()", "shows the future and hides the past"),
        ("return torch.ones(length, length, dtype=torch.bool).triu(1)", "True where a key is hidden"),
        ("return torch.ones(length, length, dtype=torch.bool).tril(1)", "shows the next word"),
        ("return torch.ones(length, length).tril()", "these are 1 and 0"),
        ("return torch.tensor([[True, False, False], [True, True, False], [True, True, True]])", "has shape [3, 3]"),
    ],
    "scaled-dot-product": [
        (
            "scores = query @ key.transpose(1, 2) / query.shape[-1]\n"
            "return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1) @ value",
            "you divided by d, not √d",
        ),
        (
            "scores = query @ key.transpose(1, 2)\n"
            "return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1) @ value",
            "not divided by √d",
        ),
        (
            "scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5\n"
            "return torch.softmax(scores.masked_fill(~mask, -torch.inf), -2) @ value",
            "the softmax runs over the queries",
        ),
        (
            "scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5\n"
            "return (torch.softmax(scores, -1) * mask) @ value",
            "after the softmax",
        ),
        (
            "scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5\n"
            "return torch.softmax(scores * mask, -1) @ value",
            "the score 0",
        ),
        (
            "scores = (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)\n"
            "return torch.softmax(scores.detach(), -1) @ value",
            "no gradient reaches query",
        ),
    ],
    "multi-head": [
        (
            "R, T, D = query.shape\n"
            "q, k, v = (x.reshape(R, heads, T, D // heads) for x in (query, key, value))\n"
            "return attention(q, k, v).reshape(R, T, D)",
            "split and joined by view alone",
        ),
        (
            "R, T, D = query.shape\n"
            "q, k, v = (x.view(R, T, heads, D // heads).transpose(1, 2) for x in (query, key, value))\n"
            "return attention(q, k, v).reshape(R, T, D)",
            "without exchanging H and T back",
        ),
        (
            "R, T, D = query.shape\n"
            "q, k, v = (x.view(R, T, heads, D // heads) for x in (query, key, value))\n"
            "return attention(q, k, v).reshape(R, T, D)",
            "the heads attend to each other",
        ),
        ("return attention(query, key, value)", "one head of width D"),
    ],
    "additive-score": [
        (
            "weights = torch.softmax(((query @ W_q.T)[:, None] + memory @ W_k.T) @ v, -1)\n"
            "return (weights[..., None] * memory).sum(1), weights",
            "the tanh is missing",
        ),
        (
            "weights = torch.softmax(torch.tanh((query @ W_q.T)[:, None] + memory @ W_k.T) @ v, 0)\n"
            "return (weights[..., None] * memory).sum(1), weights",
            "over the rows of the batch",
        ),
        (
            "weights = torch.softmax(torch.tanh((query @ W_q.T)[:, None] + memory @ W_k.T) @ v, -1)\nreturn weights",
            "it must return 2 values, the context, the weights",
        ),
    ],
    "kernel-regression": [
        (
            "w = torch.exp(-((query[:, None] - keys) ** 2) / 2)\nreturn (w * values).sum(1) / w.sum(1)",
            "the bandwidth is not used",
        ),
        (
            "w = torch.exp(-((query[:, None] - keys) ** 2) / (2 * bandwidth))\nreturn (w * values).sum(1) / w.sum(1)",
            "divided by h after it was squared",
        ),
        ("w = torch.exp(-(((query[:, None] - keys) / bandwidth) ** 2) / 2)\nreturn w @ values", "by their sum"),
    ],
    "cached-attention": [
        (
            "weights = torch.softmax((keys @ query[:, :, None])[:, :, 0] / query.shape[-1] ** 0.5, -1)\n"
            "return ((weights[:, :, None] * values).sum(1), torch.cat([keys, key[:, None]], 1),\n"
            "        torch.cat([values, value[:, None]], 1))",
            "cannot attend to itself",
        ),
        (
            "K, V = torch.cat([keys, key[:, None]], 1), torch.cat([values, value[:, None]], 1)\n"
            "weights = torch.softmax((K @ query[:, :, None])[:, :, 0] / query.shape[-1] ** 0.5, -1)\n"
            "return (weights[:, :, None] * V).sum(1), keys, values",
            "the new key and value are not stored",
        ),
        (
            "K, V = torch.cat([key[:, None], keys], 1), torch.cat([value[:, None], values], 1)\n"
            "weights = torch.softmax((K @ query[:, :, None])[:, :, 0] / query.shape[-1] ** 0.5, -1)\n"
            "return (weights[:, :, None] * V).sum(1), K, V",
            "before the old ones",
        ),
    ],
    "sinusoid-positions": [
        (
            "a = t[:, None] * 10000.0 ** (-torch.arange(width // 2, dtype=t.dtype) / (width // 2))\n"
            "return torch.cat([a.sin(), a.cos()], -1)",
            "all sines come before all cosines",
        ),
        (
            "a = t[:, None] * 10000.0 ** (-torch.arange(width // 2, dtype=t.dtype) / width)\n"
            "return torch.stack([a.sin(), a.cos()], -1).flatten(1)",
            "fall too slowly",
        ),
        (
            "t = torch.arange(len(positions), dtype=torch.float64)\n"
            "a = t[:, None] * 10000.0 ** (-torch.arange(width // 2, dtype=t.dtype) / (width // 2))\n"
            "return torch.stack([a.sin(), a.cos()], -1).flatten(1)",
            "positions that are given are not used",
        ),
        (
            "a = t[:, None].float() * 10000.0 ** (-torch.arange(width // 2) / (width // 2))\n"
            "return torch.stack([a.sin(), a.cos()], -1).flatten(1)",
            "computed in float32",
        ),
    ],
    "layer-norm": [
        (
            "y = (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, correction=0) + epsilon)\n"
            "return gain * y + bias",
            "over the positions",
        ),
        (
            "y = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + epsilon)\n"
            "return gain * y + bias",
            "divided by D − 1",
        ),
        (
            "y = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + epsilon)\nreturn gain * y + bias",
            "ε is added after the square root",
        ),
        (
            "y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + epsilon)\n"
            "return gain * y + bias",
            "not by its square root",
        ),
    ],
    "residual-block": [
        ("x = norm_1(x + attention(x))\nreturn norm_2(x + feedforward(x))", "this is post-norm"),
        ("return feedforward(norm_2(attention(norm_1(x))))", "x is not added"),
        ("return x + attention(norm_1(x)) + feedforward(norm_2(x))", "both sublayers read the x from before"),
    ],
    "word-average": [
        ("return x.mean(1, keepdim=True).expand_as(x)", "sees the future"),
        ("return x.cumsum(1) / x.shape[1]", "by the length of the whole text"),
        ("return x.cumsum(1) / torch.arange(x.shape[1])[:, None]", "t counted from 0"),
    ],
    "ngram-counts": [
        (
            """
            counts = torch.full((vocabulary, vocabulary), k, dtype=torch.float64)
            for h, w in zip(words[:-1], words[1:]):
                counts[h, w] += 1
            return counts / counts.sum(0)
            """,
            "the columns sum to 1",
        ),
        (
            """
            counts = torch.zeros(vocabulary, vocabulary, dtype=torch.float64)
            for h, w in zip(words[:-1], words[1:]):
                counts[h, w] += 1
            return (counts + k) / (counts.sum(1, keepdim=True) + k)
            """,
            "must be added V times",
        ),
        (
            """
            counts = torch.zeros(vocabulary, vocabulary, dtype=torch.float64)
            for h, w in zip(words[:-1], words[1:]):
                counts[h, w] += 1
            return counts
            """,
            "the probability at word before 0",
        ),
    ],
    "continuation-counts": [
        ("return counts.sum(dim=0)", "the word's frequencies"),
        ("return (counts > 0).sum(dim=1)", "distinct words after it"),
    ],
    "kneser-ney": [
        ("return (counts - discount) / counts.sum(1, keepdim=True).clamp(min=1)", "at word before"),
        (
            "total = counts.sum(1, keepdim=True)\n"
            "return (counts - discount) / total + discount.sum(1, keepdim=True) / total * lower",
            "divides 0 by 0",
        ),
        (
            "total = counts.sum(1, keepdim=True)\n"
            "return torch.where(total > 0, (counts - discount) / total.clamp(min=1), lower)",
            "is not redistributed",
        ),
        (
            "total = counts.sum(1, keepdim=True)\n"
            "spread = (counts - discount) / total + discount.sum(1, keepdim=True) / total / len(lower)\n"
            "return torch.where(total > 0, spread, lower)",
            "spread evenly",
        ),
    ],
    "corpus-perplexity": [
        ("return torch.exp(-torch.stack([line.mean() for line in lines]).mean())", "the mean of the lines' means"),
        ("return torch.stack([torch.exp(-line.mean()) for line in lines]).mean()", "of the lines' perplexities"),
        ("return torch.exp(-torch.cat(lines)).mean()", "the mean of 1/P"),
        ("return -torch.cat(lines).mean()", "its exponential is missing"),
    ],
    "bleu-score": [
        (
            """
            logs = 0.0
            for n in (1, 2, 3, 4):
                own, theirs = ngrams(translation, n), ngrams(reference, n)
                logs += math.log(sum(count for gram, count in own.items() if gram in theirs) / sum(own.values()))
            return 100 * min(1, math.exp(1 - len(reference) / len(translation))) * math.exp(logs / 4)
            """,
            "not clipped",
        ),
        (
            """
            logs = 0.0
            for n in (1, 2, 3, 4):
                own, theirs = ngrams(translation, n), ngrams(reference, n)
                logs += math.log(sum(min(count, theirs[gram]) for gram, count in own.items()) / sum(own.values()))
            return 100 * math.exp(logs / 4)
            """,
            "the brevity penalty is missing",
        ),
        (
            """
            shares = 0.0
            for n in (1, 2, 3, 4):
                own, theirs = ngrams(translation, n), ngrams(reference, n)
                shares += sum(min(count, theirs[gram]) for gram, count in own.items()) / sum(own.values())
            return 100 * min(1, math.exp(1 - len(reference) / len(translation))) * shares / 4
            """,
            "averaged arithmetically",
        ),
    ],
    "greedy-decoding": [
        (
            """
            token, text = bos, []
            for _ in range(limit):
                logits, state = step(token, state)
                token = int(logits.argmax())
                text.append(token)
            return text
            """,
            "it does not stop at <eos>",
        ),
        (
            """
            token, text = bos, []
            for _ in range(limit):
                logits, _ = step(token, state)
                token = int(logits.argmax())
                text.append(token)
                if token == eos:
                    break
            return text
            """,
            "the state is not carried",
        ),
        (
            """
            token, text = bos, []
            for _ in range(limit):
                logits, state = step(token, state)
                token = int(logits.argmax())
                if token == eos:
                    break
                text.append(token)
            return text
            """,
            "<eos> is dropped",
        ),
    ],
    "beam-search": [
        (
            "best, places = log_probabilities.flatten().topk(width)\n"
            "return best, places // log_probabilities.shape[1], places % log_probabilities.shape[1]",
            "the scores so far are not added",
        ),
        (
            "total = (scores[:, None] + log_probabilities).flatten()\n"
            "best, places = total.topk(width, largest=False)\n"
            "return best, places // log_probabilities.shape[1], places % log_probabilities.shape[1]",
            "the worst candidates",
        ),
        (
            "total = (scores[:, None] + log_probabilities).flatten()\n"
            "best, places = total.topk(width)\n"
            "return best, places % log_probabilities.shape[1], places // log_probabilities.shape[1]",
            "in the wrong order",
        ),
    ],
    "temperature-top-k": [
        (
            "least = logits.topk(k).values[:, -1:]\n"
            "return torch.softmax((logits * temperature).masked_fill(logits < least, -torch.inf), dim=-1)",
            "multiplied by the temperature",
        ),
        (
            "least = logits.topk(k).values[:, -1:]\n"
            "return torch.softmax(logits / temperature, dim=-1).masked_fill(logits < least, 0)",
            "do not sum to 1",
        ),
        ("return torch.softmax(logits / temperature, dim=-1)", "k is not used"),
    ],
    "nucleus-sampling": [
        (
            "ordered, places = probabilities.sort(descending=True)\n"
            "kept = ordered * (ordered.cumsum(0) - ordered < p)\n"
            "return torch.zeros_like(kept).scatter(0, places, kept)",
            "do not sum to 1",
        ),
        (
            "ordered, places = probabilities.sort(descending=True)\n"
            "kept = ordered * ((ordered.cumsum(0) <= p) | (torch.arange(len(ordered)) == 0))\n"
            "return torch.zeros_like(kept).scatter(0, places, kept / kept.sum())",
            "the word with which the sum reaches p is left out",
        ),
        (
            "ordered, places = probabilities.sort(descending=True)\n"
            "kept = ordered * (ordered.cumsum(0) - ordered < p)\n"
            "return kept / kept.sum()",
            "not of the vocabulary",
        ),
    ],
    "label-smoothing": [
        (
            "logs = torch.log_softmax(logits, dim=-1)\n"
            "return -logs[torch.arange(len(targets)), targets] - share * logs.mean(-1)",
            "(1 − ε) is missing",
        ),
        (
            "logs = torch.log_softmax(logits, dim=-1)\n"
            "one = logs[torch.arange(len(targets)), targets]\n"
            "return -(1 - share) * one - share * (logs.sum(-1) - one) / (logs.shape[1] - 1)",
            "over the V − 1 other words",
        ),
        ("return torch.nn.functional.cross_entropy(logits, targets, label_smoothing=share)", "are averaged"),
    ],
    "warm-up-schedule": [
        ("return peak * step / warmup if step < warmup else peak * math.sqrt(warmup / step)", "has rate 0"),
        ("return peak * min(1, (step + 1) / warmup)", "does not fall"),
        ("return peak * (step + 1) / warmup if step < warmup else peak * warmup / step", "square root is missing"),
    ],
}  # fmt: skip
