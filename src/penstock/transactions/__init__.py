"""The transaction coordinator: which producer holds a transactional id, and what its transaction has come to."""
