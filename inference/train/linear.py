"""The model: a word is worth the weights of its features, a window the sum of its words over the root of their number, a
text is as bad as its worst window. Windows are two blocks of 32 words and overlap by one.

Which window of an attack holds it is not known: the first fit looks at short attacks, the next one at the window of each
attack that the fit before found worst.
"""

import numpy as np
import scipy.sparse as sparse
from sklearn.linear_model import SGDClassifier

import features

BLOCK = 32
ROUNDS = 2
ALPHA = 2e-5
SEED = 1


class Windows:
    """All windows of all rows."""

    def __init__(self, arrays):
        owner, begin, end = [], [], []
        for row in range(len(arrays.labels)):
            for text in range(arrays.rows[row], arrays.rows[row + 1]):
                low, high = arrays.starts[text], arrays.starts[text + 1]
                stops = [*range(low + BLOCK, high, BLOCK), high] if high > low else []
                for stop in stops:
                    owner.append(row)
                    begin.append(max(low, low + BLOCK * ((stop - low - 1) // BLOCK - 1)))
                    end.append(stop)
        self.owner, self.begin, self.end = map(np.array, (owner, begin, end))
        self.of_row = np.bincount(self.owner, minlength=len(arrays.labels))
        self.size = 2 << features.BITS
        self.rare = rarity(arrays, self.size)

    def matrix(self, arrays):
        """One line per window: rarity of its features over the root of the number of its words."""
        n = self.end - self.begin
        words = np.repeat(self.begin - np.concatenate([[0], np.cumsum(n)[:-1]]), n) + np.arange(n.sum())
        places = arrays.feats[words]
        bounds = np.concatenate([[0], np.cumsum(n * places.shape[1])])
        values = self.rare[places] / np.repeat(np.sqrt(n), n)[:, None]
        values = (values / self.unit()).astype(np.float32)
        return sparse.csr_matrix((values.ravel(), places.ravel(), bounds), shape=(len(n), self.size))

    def unit(self):
        """What makes a window about one long."""
        return 12.0

    def worst(self, scores, rows):
        """The worst score of each row; rows without words are harmless."""
        out = np.full(rows, -1e6)
        np.maximum.at(out, self.owner, scores)
        return out


def rarity(arrays, size):
    """How rare each feature is: the logarithm of the share of rows that have it."""
    rows = len(arrays.labels)
    count = np.zeros(size)
    for row in range(rows):
        words = slice(arrays.starts[arrays.rows[row]], arrays.starts[arrays.rows[row + 1]])
        count[np.unique(arrays.feats[words])] += 1
    return np.log((rows + 1) / (count + 1)) + 1


def fit(windows, matrix, labels, weights, train, alpha=ALPHA, rounds=ROUNDS):
    """Fits on the rows in `train` (a mask). Returns the weights per feature value, and the bias."""
    owner = windows.owner
    label = labels[owner]
    harmless = train[owner] & (label == 0)
    weight = np.where(label == 0, weights[owner] / np.sqrt(windows.of_row[owner]), weights[owner])
    use = harmless | (train[owner] & (label == 1) & (windows.of_row[owner] <= 3))
    for turn in range(rounds):
        at = np.where(use)[0]
        model = SGDClassifier(loss="log_loss", alpha=alpha, max_iter=4, tol=None, average=True, random_state=SEED)
        model.fit(matrix[at], label[at], sample_weight=weight[at])
        if turn + 1 < rounds:
            scores = model.decision_function(matrix)
            order = np.lexsort((-scores, owner))
            first = order[np.concatenate([[True], owner[order][1:] != owner[order][:-1]])]
            use = harmless.copy()
            use[first[(label[first] == 1) & train[owner[first]]]] = True
    return model.coef_[0], float(model.intercept_[0])
