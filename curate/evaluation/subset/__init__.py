"""Quality of a subset: models trained on it, on all rows and on random rows; diversity and coverage."""
