"""The model: a word is worth the weights of its features, a window the sum of its words over the root of their number, a
text is as bad as its worst window. Windows are two blocks of 32 words and overlap by one.

A feature has one weight that all texts share and one for the role of the text (what somebody asks, or data), which costs
more. Only features that stand in texts of several families of sources have any: what one source alone says is its own way
of speaking.

Which window of an attack holds it is not known: the first fit looks at short attacks, the next one at the window of each
attack that the fit before found worst.
"""

import numpy as np
import scipy.sparse as sparse
from sklearn.linear_model import SGDClassifier

BLOCK = 32
ROUNDS = 2
ALPHA = 2e-5
SEED = 1
FAMILIES_MIN = 3
# What a weight for one role counts for beside a shared one.
ROLE = 0.5
# Words that a window has beside its own: a text of three says less than its words.
PRIOR = 2
# Windows of a harmless row that a fit looks at, on average.
HARMLESS_WINDOWS = 12
UNIT = 12.0


class Windows:
    """All windows of all rows."""

    def __init__(self, arrays):
        texts = np.diff(arrays.starts)
        blocks = -(-texts // BLOCK)
        text = np.repeat(np.arange(len(texts)), blocks)
        turn = np.arange(len(text)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        low, high = arrays.starts[text], arrays.starts[text + 1]
        self.begin = low + BLOCK * np.maximum(turn - 1, 0)
        self.end = np.minimum(low + BLOCK * (turn + 1), high)
        row_of_text = np.repeat(np.arange(len(arrays.labels)), np.diff(arrays.rows))
        self.owner = row_of_text[text]
        self.of_row = np.bincount(self.owner, minlength=len(arrays.labels))

    def words(self):
        """The window of each word of each window, and the word."""
        n = self.end - self.begin
        window = np.repeat(np.arange(len(n)), n)
        return window, self.begin[window] + np.arange(n.sum()) - (np.cumsum(n) - n)[window]

    def worst(self, scores, rows):
        """The worst score of each row; rows without words are harmless."""
        out = np.full(rows, -1e6)
        np.maximum.at(out, self.owner, scores)
        return out


class Fit:
    """The weights of a fit on the rows in `train` (a mask), while the sources of `fold` are left out. `soft` has of some rows how
    likely a teacher thinks they are attacks, which counts instead of their label; of the others it is not a number."""

    def __init__(self, arrays, windows, fold, row_weights, train, soft=None):
        met = sum(count for k, count in arrays.families.items() if fold is None or k != fold)
        self.kept = np.where(met >= FAMILIES_MIN)[0]
        # How rare each feature is: the logarithm of the share of rows that have it.
        self.rare = (np.log((len(arrays.labels) + 1) / (arrays.count[self.kept] + 1)) + 1) / UNIT
        matrix = self._matrix(arrays, windows)
        soft = np.full(len(arrays.labels), np.nan) if soft is None else soft
        coef, bias = fit(windows, matrix, arrays.labels, row_weights, train, soft)
        shared, roles = coef[: len(self.kept)], coef[len(self.kept) : -2].reshape(2, -1)
        self.weights = (shared + ROLE * roles) * self.rare
        self.biases = bias + ROLE * coef[-2:]

    def _matrix(self, arrays, windows):
        """One line per window: rarity of its features over the root of the number of its words; the same again by role."""
        column = np.full(len(arrays.names), -1)
        column[self.kept] = np.arange(len(self.kept))
        window, word = windows.words()
        columns = column[arrays.ids[word]]
        lines = np.repeat(window[:, None], columns.shape[1], 1)
        has = columns >= 0
        columns, lines = columns[has], lines[has]
        values = self.rare[columns] / np.sqrt(windows.end - windows.begin + PRIOR)[lines]
        shape = (len(windows.owner), len(self.kept))
        shared = sparse.csr_matrix((values.astype(np.float32), (lines, columns)), shape=shape)
        is_role = sparse.csr_matrix(np.stack([arrays.roles == 0, arrays.roles == 1], 1)[windows.owner].astype(np.float32))
        by_role = [sparse.diags_array(ROLE * is_role[:, k].toarray()[:, 0]) @ shared for k in (0, 1)]
        return sparse.hstack([shared, *by_role, ROLE * is_role], format="csr", dtype=np.float32)


def fit(windows, matrix, labels, weights, train, soft):
    """Fits on the rows in `train`. Returns the weights per feature value, and the bias."""
    owner = windows.owner
    label, taught = labels[owner], ~np.isnan(soft[owner])
    train, told = train & np.isnan(soft), np.where(train[owner] & taught)[0]
    share = np.minimum(1.0, HARMLESS_WINDOWS / windows.of_row[owner])
    drawn = np.random.default_rng(SEED).random(len(owner)) < share
    harmless = train[owner] & (label == 0) & drawn
    weight = np.where(label == 0, weights[owner] / np.sqrt(windows.of_row[owner]) / share, weights[owner])
    use = harmless | (train[owner] & (label == 1) & (windows.of_row[owner] <= 3))
    for turn in range(ROUNDS):
        at = np.where(use)[0]
        model = SGDClassifier(loss="log_loss", alpha=ALPHA, max_iter=4, tol=None, average=True, random_state=SEED)
        lines, said = sparse.vstack([matrix[at], matrix[told], matrix[told]]), soft[owner[told]]
        answers = np.concatenate([label[at], np.ones(len(told), np.int64), np.zeros(len(told), np.int64)])
        counts = np.concatenate([weight[at], weights[owner[told]] * said, weights[owner[told]] * (1 - said)])
        model.fit(lines, answers, sample_weight=counts)
        if turn + 1 < ROUNDS:
            scores = model.decision_function(matrix)
            order = np.lexsort((-scores, owner))
            first = order[np.concatenate([[True], owner[order][1:] != owner[order][:-1]])]
            use = harmless.copy()
            use[first[(label[first] == 1) & train[owner[first]]]] = True
    return model.coef_[0], float(model.intercept_[0])
