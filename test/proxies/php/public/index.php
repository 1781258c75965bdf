<?php require __DIR__ . '/../seen.php';
